"""compute-sanitizer as a further stage: how the process for it is started, and what becomes of its report.

Where there is no GPU a shell script stands for the tool: it is started, confined and read like the tool, and
runs the command that it is given.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from autokernel import ops
from autokernel.errors import UsageError
from autokernel.evaluator import Evaluator, EvaluatorSettings
from autokernel.runner import sandbox
from autokernel.runner.client import Limits
from autokernel.verdict import Finding
from autokernel.verifier import sanitize
from tests.planting import needs_compiler, right, wrapped

CLEAN = 'while [ "$1" != "--print-limit" ]; do shift; done\nshift 2\nexec "$@"\n'
REPORT = """
echo "========= COMPUTE-SANITIZER"
echo "========= Invalid __global__ write of size 4 bytes"
echo "=========     at softmax_kernel+0x3c0 in kernel.cu:7"
echo "========= ERROR SUMMARY: 1 error"
exit 86
"""


def examined(folder: Path, script: str, source: str) -> list[Finding]:
    """What is found when ``script`` is the tool and the kernel runs on the CPU."""
    tool = folder / "compute-sanitizer"
    tool.write_text("#!/bin/sh\n" + script)
    tool.chmod(0o755)
    found = sanitize.findings(
        source,
        ops.get("rmsnorm"),
        "rmsnorm",
        device="cpu",
        level=sandbox.level(),
        limits=Limits(),
        sanitizer=str(tool),
        tools=["memcheck"],
    )
    return list(found)


@needs_compiler
def test_a_kernel_that_the_tool_has_nothing_against_gives_no_finding(tmp_path):
    assert examined(tmp_path, CLEAN, right("rmsnorm")) == []


@needs_compiler
def test_the_kernel_is_confined_and_its_failure_is_reported(tmp_path):
    target = tmp_path / "outside.txt"
    source = wrapped("rmsnorm", f"open({str(target)!r}, 'w')")

    (finding,) = examined(tmp_path, CLEAN, source)

    assert finding.kind == "memcheck_failed"
    if sandbox.level() != "process":
        assert "Read-only file system" in finding.evidence or "Permission denied" in finding.evidence
        assert not target.exists()


def test_what_the_tool_reports_is_a_finding_with_its_words(tmp_path):
    (finding,) = examined(tmp_path, REPORT, right("rmsnorm"))

    assert finding == Finding("memcheck_error", "1 error; Invalid __global__ write of size 4 bytes")


def test_without_a_gpu_it_says_what_it_needs():
    with pytest.raises(UsageError, match="examines kernels on an NVIDIA GPU, and the device is cpu"):
        Evaluator("rmsnorm", device="cpu", settings=EvaluatorSettings(sanitize=True))


def test_without_the_tool_it_says_where_it_comes_from(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="comes with the CUDA toolkit"):
        sanitize.find("cuda:0")


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or shutil.which("compute-sanitizer") is None,
    reason="needs a GPU and compute-sanitizer on the PATH",
)
def test_a_right_triton_kernel_is_accepted_under_the_tool():
    with Evaluator("rmsnorm", device="cuda", settings=EvaluatorSettings(sanitize=True)) as evaluator:
        verdict = evaluator.verify(right("rmsnorm", "triton"))

    assert verdict.accepted, verdict.reason
