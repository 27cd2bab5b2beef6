"""What the tests of the operations share: one process with Triton's interpreter, for all starters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
STARTERS = ROOT / "autokernel" / "starters" / "triton"


@pytest.fixture(scope="session")
def interpret() -> Iterator[Callable[..., dict[str, Any]]]:
    """``interpret(spec, kernel=its starter)``: judge a Triton kernel on every case; ratios and seconds by label."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.ops.interpret"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(spec: str, kernel: str | None = None) -> dict[str, Any]:
            stdin.write(json.dumps([spec, kernel or str(STARTERS / f"{spec}.py")]) + "\n")
            stdin.flush()
            reply: dict[str, Any] = json.loads(stdout.readline())
            assert "error" not in reply, reply.get("error")
            return reply

        yield ask
        stdin.close()


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
