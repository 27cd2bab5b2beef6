"""benchmarks/tune.py finds the constants of a kernel that is slow by its constants, and skips what does not work."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.command_line import ROOT, environment

# Time grows with SLEEPS; PADDING changes nothing that can be seen; one value is wrong, one does not run.
KERNEL = """
import time
import torch

KERNEL_TYPE = "reduce"
BACKEND = "cpp"
SLEEPS = 8  # one of 1, 4, 8
FLAW = "none"  # one of none, wrong, broken


def kernel_fn(x):
    time.sleep(0.001 * SLEEPS)
    if FLAW == "broken":
        raise RuntimeError("no such block size")
    return x.sum(dim=-1) + (1.0 if FLAW == "wrong" else 0.0)
"""


def test_tune_finds_the_fastest_constants_and_says_what_it_skipped(tmp_path):
    file, out = tmp_path / "kernel.py", tmp_path / "out.json"
    file.write_text(KERNEL)
    result = subprocess.run(
        [
            sys.executable, "benchmarks/tune.py", "reduce", "--kernel", file, "--config", "M=4,N=33", "--device", "cpu",
            "--dtype", "float32", "--minutes", "0.1", "--json", out,
        ],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    assert result.returncode == 0, result.stderr
    (report,) = json.loads(out.read_text())["configs"]
    assert report["best"] == {"SLEEPS": 1, "FLAW": "none"}
    assert report["best_us"] < report["base_us"] / 2
    skipped = {one["FLAW"]: one["why"] for one in report["skipped"]}
    assert skipped["broken"] == "RuntimeError: no such block size"
    assert "differs from that of the first text" in skipped["wrong"]
    assert "SLEEPS=1" in result.stdout.splitlines()[-1]
