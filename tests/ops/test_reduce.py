from __future__ import annotations

import pytest
import torch

from autokernel.ops.reduce import SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import filled, judge, worst


def test_reference_sums_the_last_dimension():
    x = torch.arange(24, dtype=torch.float64).reshape(2, 3, 4)
    assert torch.equal(SPEC.reference(x), torch.tensor([[6.0, 22.0, 38.0], [54.0, 70.0, 86.0]], dtype=torch.float64))


def test_torch_sum_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("reduce")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fill", ["normal", "positive", "ones"])
def test_sums_in_the_input_dtype_are_outside_the_bound(dtype, fill):
    def low_precision(x):
        total = x[..., 0].clone()
        for i in range(1, x.shape[-1]):
            total += x[..., i]
        return total

    assert judge(SPEC, Case(shape={"M": 4, "N": 4096}, dtype=dtype, fill=fill), low_precision) > 1


def test_a_dropped_tail_is_outside_the_bound():
    shape = {"M": 5, "N": 127}
    for fill in ("normal", "only_last"):
        assert judge(SPEC, Case(shape=shape, dtype="bfloat16", fill=fill), lambda x: x[..., :64].sum(-1)) > 10


def test_a_plain_float32_sum_of_a_long_row_is_within_half_the_bound():
    def sequential(x):
        total = torch.zeros(x.shape[:-1])
        for i in range(x.shape[-1]):
            total += x[..., i]
        return total

    for fill in ("normal", "positive", "ones", "large_mean", "cancelling"):
        assert judge(SPEC, Case(shape={"M": 4, "N": 50257}, dtype="float32", fill=fill), sequential) <= 0.5
    assert judge(SPEC, filled(SPEC, "outlier"), sequential) <= 0.5
