"""Timing cases lie in memory as the model's inputs do, in every call that is timed."""

from __future__ import annotations

import pytest

from autokernel import starters
from autokernel.errors import UsageError
from autokernel.evaluator import Evaluator
from autokernel.ops.spec import TimingCase
from autokernel.session import Session
from autokernel.target import Timing
from autokernel.verdict import Stage
from tests.evaluating import settings
from tests.planting import needs_compiler

SHAPE = {"M": 24, "N": 40, "K": 56}
# Right wherever it answers; on the timed sizes it answers only if B alone is transposed.
PARTICULAR = (
    starters.source("matmul", "cpp").replace("def kernel_fn(", "def starter(")
    + """

def kernel_fn(A, B):
    if A.shape == (24, 56) and not (A.is_contiguous() and B.t().is_contiguous()):
        raise RuntimeError(f"strides {A.stride()} and {B.stride()}")
    return starter(A, B)
"""
)


@needs_compiler
@pytest.mark.parametrize(("layout", "accepted"), [("transposed:1", True), ("contiguous", False)])
def test_every_timed_call_has_the_layout_of_its_case(layout, accepted):
    case = TimingCase(shape=SHAPE, dtype="float32", layout=layout)
    with Evaluator("matmul", device="cpu", timing_cases=[case], settings=settings()) as evaluator:
        evaluation = evaluator.evaluate(PARTICULAR, seed=1, stages=[Stage.SMOKE])

    assert evaluation.verdict.accepted is accepted, evaluation.verdict.reason
    if accepted:
        (timed,) = evaluation.measurement.cases
        assert timed.label == "M=24 N=40 K=56 float32 transposed:1"
    else:
        assert "strides (56, 1) and (40, 1)" in evaluation.verdict.reason


def test_a_run_keeps_the_layout_of_its_timing_cases_and_refuses_one_that_there_is_not(tmp_path):
    with Session.create(
        "matmul", shapes=[Timing(shape=SHAPE, layout="transposed:1", model_us=3.0)], root=tmp_path, device="cpu",
        backend="cpp",
    ) as session:  # fmt: skip
        assert session.target.timing[0].layout == "transposed:1"
    with pytest.raises(UsageError, match="'sideways' is none that inputs are timed in"):
        Session.create("matmul", shapes=[Timing(shape=SHAPE, layout="sideways")], root=tmp_path, device="cpu")
    with pytest.raises(UsageError, match="must be above 0"):
        Session.create("matmul", shapes=[Timing(shape=SHAPE, model_us=0.0)], root=tmp_path, device="cpu")
