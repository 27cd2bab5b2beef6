"""A run that was really judged, and an environment to install into, made once for all tests of exports."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from autokernel.session import Session


@pytest.fixture(scope="session")
def judged_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of rmsnorm in C++ whose baseline was verified and timed on this machine."""
    if shutil.which("g++") is None:
        pytest.skip("no g++, so no C++ kernel can be compiled")
    root = tmp_path_factory.mktemp("runs")
    with Session.create("rmsnorm", device="cpu", backend="cpp", shapes=[{"M": 64, "N": 256}], root=root) as session:
        asyncio.run(session.step())
    return session.path


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a fresh environment that shares this one's packages, but not AutoKernel."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    command = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # .pth files in there are not followed
    return str(folder / "bin" / "python")
