from __future__ import annotations

import numpy
import pytest
import torch

from autokernel.ops.spec import Case
from autokernel.ops.vectorsum import SPEC
from tests.ops.judging import judge, worst

LONG = {"N": 1 << 20}


def test_reference_is_a_scalar_without_dimensions():
    y = SPEC.reference(torch.arange(5, dtype=torch.float64))
    assert (y.shape, y.item()) == (torch.Size([]), 10.0)


def test_torch_sum_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("vectorsum")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


def sequential(x):
    return torch.tensor(numpy.cumsum(x.numpy(), dtype=numpy.float32)[-1])  # NumPy adds one after the other


@pytest.mark.parametrize("fill", SPEC.fills)
def test_a_float32_sum_term_by_term_is_within_half_the_bound_for_the_values_that_are_tried(fill):
    assert judge(SPEC, Case(shape=SPEC.shapes[-1], dtype="float32", fill=fill), sequential) <= 0.5


@pytest.mark.parametrize("fill", ["normal", "positive", "cancelling"])
def test_a_float32_sum_term_by_term_is_within_half_the_bound_for_a_million_terms(fill):
    assert judge(SPEC, Case(shape=LONG, dtype="float32", fill=fill), sequential) <= 0.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_result_in_the_input_dtype_is_refused(dtype):
    assert judge(SPEC, Case(shape={"N": 64}, dtype=dtype), torch.sum) == float("inf")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fill", ["normal", "positive", "ones"])
def test_sums_in_the_input_dtype_are_outside_the_bound(dtype, fill):
    def low_precision(x):
        total = x[:1].clone()
        for i in range(1, x.shape[0]):
            total += x[i]
        return total[0].float()

    assert judge(SPEC, Case(shape={"N": 5000}, dtype=dtype, fill=fill), low_precision) > 1


@pytest.mark.parametrize("N", [127, 4097])
def test_a_dropped_tail_is_outside_the_bound(N):
    def dropped(x):
        return x[: x.shape[0] // 64 * 64 - 64].float().sum()

    assert judge(SPEC, Case(shape={"N": N}, dtype="float32", fill="only_last"), dropped) > 10
    assert judge(SPEC, Case(shape={"N": N}, dtype="float32", fill="positive"), dropped) > 1


def test_a_tenth_of_a_thousandth_of_the_terms_is_missed_in_a_long_vector():
    def without_one_part(x):
        return x[: x.shape[0] * 9999 // 10000].float().sum()

    ratios = [judge(SPEC, Case(shape=LONG, dtype="float32"), without_one_part, seed) for seed in range(3)]
    assert sorted(ratios)[1] > 4, "their sum is small by chance at most now and then"
