"""The loop with the real judge: kernels are compiled, verified and timed in processes of their own."""

from __future__ import annotations

import shutil

import pytest

from autokernel import results
from autokernel.runfolder import RunFolder
from autokernel.session import Session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled"),
]

BROKEN = """
KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"

def kernel_fn(x, weight, eps=1e-6):
    return x * 0
"""


async def test_a_run_on_this_machines_cpu_keeps_only_what_is_right_and_measured(tmp_path):
    with Session.create("rmsnorm", device="cpu", shapes=[{"M": 128, "N": 1024}], root=tmp_path) as session:
        baseline = await session.step()
        tried = await session.step()
        broken = await session.submit(BROKEN, "zeros are fast")
        garbage = await session.submit("def kernel_fn(:\n", "no Python")

    assert (baseline.decision, baseline.correctness) == ("baseline", "PASS")
    assert baseline.speedup is not None
    assert baseline.speedup.low <= baseline.speedup.value <= baseline.speedup.high
    assert (tried.correctness, tried.agent) == ("PASS", "search")
    assert tried.speedups["incumbent"].value > 0
    assert (broken.correctness, broken.decision) == ("FAIL", "revert")
    assert (garbage.correctness, garbage.decision) == ("FAIL", "revert")
    rows = results.load(session.path / "results.tsv")
    assert [row.correctness for row in rows] == ["PASS", "PASS", "FAIL", "FAIL"]
    run = RunFolder(session.path)
    verdict, measurement, _ = run.judgement(1)
    assert verdict is not None
    assert [stage.name.value for stage in verdict.stages] == ["smoke", "sweep", "stability", "determinism", "edge"]
    assert measurement is not None
    assert measurement.latency_us == pytest.approx(rows[1].latency_us, rel=0.5)
    assert {event["stage"] for event in run.events() if event["kind"] == "progress"} >= {"smoke", "timing"}
