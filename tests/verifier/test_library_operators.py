"""What PyTorch itself computes must be judged right: its operators, wrapped as candidates."""

from __future__ import annotations

import pytest

from autokernel import ops
from autokernel.evaluator import Evaluator, EvaluatorSettings

WRAPPED = """
from autokernel import ops

KERNEL_TYPE = {name!r}
BACKEND = "cpp"
baseline = ops.get({name!r}).baseline


def kernel_fn(*inputs, **options):  # for the default form: that of halves rounds its products to the inputs' dtype
    return baseline(*inputs, **options)
"""


@pytest.mark.parametrize("name", ops.names())
def test_pytorch_s_own_operator_is_right(name: str) -> None:
    with Evaluator(name, device="cpu", settings=EvaluatorSettings(allow=("library_call",))) as evaluator:
        verdict = evaluator.verify(WRAPPED.format(name=name))

    assert verdict.accepted, verdict.reason
    known = ("too many for a CPU", "judged for the default alone")
    assert all(case.reason.endswith(known) for case in verdict.skipped)


def test_pytorch_s_own_operator_is_no_kernel_unless_that_is_allowed() -> None:
    with Evaluator("softmax", device="cpu") as evaluator:
        verdict = evaluator.verify(WRAPPED.format(name="softmax"))

    assert not verdict.accepted
    assert [finding.kind for finding in verdict.findings] == ["library_call"]
