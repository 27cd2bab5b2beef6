"""Run the command line as a person does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "autokernel.cli"]


def environment() -> dict[str, str]:
    """This process's environment, with the checkout importable from any folder."""
    paths = [str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def autokernel(*arguments: object, cwd: Path = ROOT, timeout: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Run ``autokernel`` with the arguments, to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout
    )
