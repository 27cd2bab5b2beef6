"""Exported, installed in a fresh environment, called, and verified again."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autokernel import backends, starters
from autokernel.export import export_package
from tests.command_line import autokernel
from tests.export.recorded import load, record

CALL_RMSNORM = """
import importlib.util
assert importlib.util.find_spec("autokernel") is None
import torch, fast_rms
x, weight = torch.randn(64, 256), torch.rand(256)
right = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
print(float((fast_rms.rmsnorm(x, weight) - right).abs().max()) < 1e-5)
fast_rms.rmsnorm(x[:63], weight)
print(fast_rms.report())
print(fast_rms.__file__)
"""
CALL_SOFTMAX = """
import importlib.util
assert importlib.util.find_spec("autokernel") is None
import torch, quick_softmax
x = torch.randn(7, 8)
print(float((quick_softmax.softmax(x).double() - torch.softmax(x.double(), -1)).abs().max()) < 1e-6)
print(quick_softmax.report())
"""
COMPILE_CUDA = """
import sys
sys.modules["autokernel"] = None  # an import of it fails
import torch, cuda_softmax
from cuda_softmax import kernel
print(len(kernel.MODULE.cubin("sm_90", torch.float16).code) > 1000)
x = torch.randn(7, 8)
print(torch.equal(cuda_softmax.softmax(x), torch.softmax(x, -1)), cuda_softmax.report())
"""


def installed(python: str, project: Path) -> None:
    """Install a project as a person does who has no network."""
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    command += ["--no-build-isolation", "--no-deps", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def called(python: str, code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = ("PYTHONPATH", "TRITON_INTERPRET")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [python, "-c", code], cwd=folder, env={**environment, **variables}, capture_output=True, text=True, timeout=240
    )


@pytest.mark.slow
def test_a_judged_kernel_is_installed_without_autokernel_and_is_accepted_again(judged_run, python, tmp_path):
    installed(python, export_package(judged_run, "fast_rms", tmp_path / "project"))

    answer = called(python, CALL_RMSNORM, tmp_path)

    assert answer.returncode == 0, answer.stderr
    right, report, file = answer.stdout.splitlines()
    assert right == "True"
    assert report == "{'kernel': 1, 'PyTorch: x[0]=63 x[1]=256 weight[0]=256 float32 float32 was not verified': 1}"
    assert Path(file).is_relative_to(Path(python).parents[1])

    judged = tmp_path / "project" / "verified" / "kernel.py"
    packaged = tmp_path / "project" / "fast_rms" / "kernel.py"
    assert judged.read_text() == (judged_run / "kernel.py").read_text()
    assert changed_lines(judged, packaged) == ["-from autokernel.backends import cpp", "+from ._support import cpp"]
    again = autokernel("verify", judged, "--device", "cpu", "--stage", "smoke", "--stage", "edge")
    assert again.returncode == 0, again.stdout + again.stderr


def changed_lines(before: Path, after: Path) -> list[str]:
    lines = difflib.unified_diff(before.read_text().splitlines(), after.read_text().splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


@pytest.mark.slow
def test_a_triton_kernel_that_was_verified_in_the_interpreter_runs_in_it(python, tmp_path):
    run = record(
        tmp_path / "softmax-1", starters.source("softmax", "triton"), operation="softmax", backend="triton",
        passed=["M=7 N=8 float32"],
    )  # fmt: skip
    installed(python, export_package(run, "quick_softmax", tmp_path / "project"))

    answer = called(python, CALL_SOFTMAX, tmp_path, TRITON_INTERPRET="1")

    assert answer.stdout.splitlines() == ["True", "{'kernel': 1}"], answer.stderr


def test_a_triton_kernel_that_was_verified_in_the_interpreter_runs_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    run = record(
        tmp_path / "softmax-1", starters.source("softmax", "triton"), operation="softmax", backend="triton",
        passed=["M=7 N=8 float32"],
    )  # fmt: skip
    package = load(export_package(run, "idle_softmax", tmp_path / "project"), "idle_softmax")

    with pytest.warns(RuntimeWarning, match="set TRITON_INTERPRET=1 before Python starts; PyTorch runs instead"):
        output = package.softmax(torch.eye(7, 8))

    assert torch.equal(output, torch.softmax(torch.eye(7, 8), -1))


@pytest.mark.thorough
def test_an_exported_kernel_is_accepted_again_in_all_stages(judged_run, tmp_path):
    project = export_package(judged_run, "once_more", tmp_path / "project")

    done = autokernel("verify", project / "verified" / "kernel.py", "--device", "cpu")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("operation", ["reduce", "layernorm"])
def test_an_exported_triton_kernel_is_accepted_again(operation, tmp_path):
    run = record(
        tmp_path / "run", starters.source(operation, "triton"), operation=operation, backend="triton",
        passed=["M=7 N=8 float32"],
    )  # fmt: skip
    project = export_package(run, "again", tmp_path / "project")

    done = autokernel("verify", project / "verified" / "kernel.py", "--stage", "smoke", "--stage", "edge")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not backends.available("cuda")[0], reason=backends.available("cuda")[1])
def test_a_cuda_kernel_compiles_in_its_package_and_leaves_other_devices_to_pytorch(tmp_path):
    run = record(
        tmp_path / "softmax-1", starters.source("softmax", "cuda"), operation="softmax", backend="cuda",
        passed=["M=7 N=8 float32"], device="cuda", device_name="NVIDIA H200 (sm_90, 132 SMs, 141 GiB)",
    )  # fmt: skip
    project = export_package(run, "cuda_softmax", tmp_path / "project")

    # Not installed: NVIDIA's own search for NVRTC does not look where the fresh environment finds its packages.
    answer = called(sys.executable, COMPILE_CUDA, tmp_path, PYTHONPATH=str(project))

    assert answer.stdout.splitlines() == [
        "True", "True {'PyTorch: not all on one device of kind cuda': 1}"
    ], answer.stderr  # fmt: skip
