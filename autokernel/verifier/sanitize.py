"""NVIDIA's compute-sanitizer on a candidate: out-of-bounds and misaligned accesses, races, uninitialised reads.

It sees what values cannot show, such as a write into another allocation or a race that has not gone wrong
yet, and slows a kernel down by a factor of ten to a hundred.  So it is tried on request only, on a few
small shapes, in a process that is started for it (`autokernel.runner.alone`).

Units: seconds.
Source: NVIDIA, Compute Sanitizer User Manual, section "Using Compute Sanitizer" (tools and options).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autokernel.errors import UsageError
from autokernel.ops.spec import Case, KernelSpec
from autokernel.runner import sandbox
from autokernel.runner.client import Limits
from autokernel.verdict import Finding
from autokernel.verifier.plan import plan
from autokernel.verifier.stages import load_request

__all__ = ["TOOLS", "find", "findings"]

TOOLS = ("memcheck", "racecheck", "initcheck")
_ROOT = Path(__file__).resolve().parents[2]
_ERROR_STATUS = 86
_SECONDS = 300.0
_REPORT = re.compile(r"^========= (?!COMPUTE-SANITIZER|ERROR SUMMARY|\s)(.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (.+)$", re.MULTILINE)


def find(device: str) -> str:
    """The path of compute-sanitizer.

    Raises:
        UsageError: It is not on the PATH, or ``device`` is no GPU.
    """
    if device == "cpu":
        raise UsageError("--sanitize examines kernels on an NVIDIA GPU, and the device is cpu; leave --sanitize out")
    path = shutil.which("compute-sanitizer")
    if path is None:
        raise UsageError(
            "--sanitize needs NVIDIA's compute-sanitizer, which is not on the PATH; it comes with the CUDA toolkit "
            "(add its bin folder to the PATH), or leave --sanitize out"
        )
    return path


def findings(
    source: str,
    spec: KernelSpec,
    reference: str,
    *,
    device: str,
    level: str,
    limits: Limits,
    sanitizer: str,
    dtype: str | None = None,
    tools: Sequence[str] = TOOLS,
) -> Iterator[Finding]:
    """Run a candidate under each tool and yield what it reports.

    Args:
        source: The text of its kernel.py; it should have been accepted before.
        spec: The operation.
        reference: Where the operation comes from, as `autokernel.ops.resolve` takes it.
        device: ``cuda:0``.
        level: Isolation level of the process, one of `sandbox.LEVELS`.
        limits: Of these the file size counts.
        sanitizer: From `find`.
        dtype: The target's dtype.
        tools: Of `TOOLS`.
    """
    cases = _cases(spec, dtype)
    for tool in tools:
        with tempfile.TemporaryDirectory(prefix="autokernel-") as folder:
            request = _write_request(Path(folder), source, spec, reference, device, limits, cases)
            yield from _run(Path(folder), request, level, sanitizer, tool)


def _cases(spec: KernelSpec, dtype: str | None) -> list[Case]:
    """The smallest listed shapes, one with sizes that no block divides among them."""
    stages = list(plan(spec, dtype=dtype).values())
    small = [case for cases in (stages[0], stages[-1]) for case in cases]
    return small[:4]


def _write_request(
    folder: Path, source: str, spec: KernelSpec, reference: str, device: str, limits: Limits, cases: Sequence[Case]
) -> Path:
    packages = [path for path in sys.path if path and path.endswith("-packages")]
    named = Path(reference.rpartition(":")[0] or reference)
    request = {
        **load_request(spec, "candidate", source),
        "reference": reference,
        "device": device,
        "seed": 1,
        "scratch": str(folder),
        "needed": [str(_ROOT), sys.prefix, sys.base_prefix, *packages, *([str(named)] if ".py" in reference else [])],
        "homes": sandbox.home_folders(),
        "file_bytes": limits.file_bytes,
        "cases": [{"shape": dict(c.shape), "dtype": c.dtype, "options": dict(c.options)} for c in cases],
    }
    path = folder / "request.json"
    path.write_text(json.dumps(request))
    return path


def _run(folder: Path, request: Path, level: str, sanitizer: str, tool: str) -> Iterator[Finding]:
    command = [sys.executable, "-m", "autokernel.runner.alone", level, str(request), sanitizer]
    options = ["--tool", tool, "--error-exitcode", str(_ERROR_STATUS), "--print-limit", "5"]
    packages = [path for path in sys.path if path and path.endswith("-packages")]
    search = os.pathsep.join([str(_ROOT), *packages])
    with open(folder / "report.txt", "wb") as report:
        process = subprocess.Popen(
            [*command, *options],
            env=sandbox.clean_environment(folder, {"PYTHONPATH": search, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
            stdin=subprocess.DEVNULL,
            stdout=report,
            stderr=report,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
    text = (folder / "report.txt").read_text(errors="replace")
    if status == 0:
        return
    if status is None:
        yield Finding(f"{tool}_not_finished", f"no end after {_SECONDS:.0f} s under compute-sanitizer")
    elif status == _ERROR_STATUS:
        lines = [line.strip() for line in _REPORT.findall(text)]
        summary = _SUMMARY.findall(text)
        yield Finding(f"{tool}_error", "; ".join([*summary[-1:], *lines[:3]])[:1500] or text[-500:])
    else:
        yield Finding(f"{tool}_failed", f"the run under compute-sanitizer left with status {status}: {text[-800:]}")
