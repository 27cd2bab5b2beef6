"""Kernels that others wrote: Liger-Kernel's Triton kernels, wrapped as candidates, must be judged right.

Needs ``liger-kernel`` where Python finds it (``pip install liger-kernel``, or ``--target`` a folder whose
name ends in ``-packages`` and that is on PYTHONPATH); without it these tests are skipped.
"""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

from autokernel.verdict import Stage, Verdict
from tests.evaluating import LIMITS, brief_evaluator

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed"),
]

KERNELS = {
    "rmsnorm": """
from liger_kernel.ops.rms_norm import rms_norm_forward

KERNEL_TYPE = "rmsnorm"
BACKEND = "triton"


def kernel_fn(x, weight, eps=1e-6):
    return rms_norm_forward(x.contiguous(), weight.contiguous(), eps, 0.0, "llama", None)[0]
""",
    "layernorm": """
from liger_kernel.ops.layer_norm import layer_norm_forward

KERNEL_TYPE = "layernorm"
BACKEND = "triton"


def kernel_fn(x, weight, bias, eps=1e-5):
    return layer_norm_forward(x.contiguous(), weight.contiguous(), bias.contiguous(), eps)[0]
""",
    "softmax": """
from liger_kernel.ops.softmax import _softmax_forward

KERNEL_TYPE = "softmax"
BACKEND = "triton"


def kernel_fn(x):
    return _softmax_forward(x)[0]
""",
    "cross_entropy": """
from liger_kernel.ops.cross_entropy import cross_entropy_forward

KERNEL_TYPE = "cross_entropy"
BACKEND = "triton"


def kernel_fn(logits, targets):
    # Each row's loss is kept in the logits' dtype, so half-width logits are widened first.
    rows = logits.float()
    rows = rows.clone() if rows.data_ptr() == logits.data_ptr() else rows
    return cross_entropy_forward(rows, targets, None, -100, 0.0, 0.0, "mean", None, False)[0]
""",
}


def judged(name: str) -> Verdict:
    limits = dataclasses.replace(LIMITS, load_seconds=120.0)  # the package imports all of its operations
    with brief_evaluator(name, limits=limits) as evaluator:
        return evaluator.verify(KERNELS[name])


def test_where_liger_means_something_else_that_is_what_the_reason_says():
    verdict = judged("cross_entropy")

    # With every target ignored, Liger's mean is 0 and PyTorch's is not a number.
    assert not verdict.accepted
    assert verdict.failed_stage is Stage.STABILITY
    assert "all_ignored: element [] is 0, expected nan" in verdict.reason
    assert not verdict.findings


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "softmax"])
def test_a_kernel_of_liger_is_accepted(name):
    verdict = judged(name)

    assert verdict.accepted, verdict.reason
    assert not verdict.findings
    assert sum(case.status.value == "pass" for stage in verdict.stages for case in stage.cases) > 30
