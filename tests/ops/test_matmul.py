from __future__ import annotations

import pytest
import torch

from autokernel.ops.matmul import SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import as_tf32, filled, judge, worst

LONG = Case(shape={"M": 64, "N": 64, "K": 8192}, dtype="float32")


def test_reference_is_the_matrix_product():
    A, B = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0], [6.0]])
    assert SPEC.reference(A, B).tolist() == [[17.0], [39.0]]


def test_torch_matmul_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("matmul")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.parametrize("fill", ["normal", "positive", "outlier", "row_scales"])
def test_a_float32_sum_term_by_term_is_within_half_the_bound_for_long_rows(fill):
    def sequential(A, B):
        total = torch.zeros(A.shape[0], B.shape[1])
        for k in range(A.shape[1]):
            total += A[:, k, None] * B[None, k, :]
        return total

    assert judge(SPEC, Case(shape=LONG.shape, dtype="float32", fill=fill), sequential) <= 0.5


@pytest.mark.parametrize("fill", ["normal", "positive", "outlier", "row_scales"])
@pytest.mark.parametrize("shape", SPEC.shapes)
def test_tf32_operands_are_outside_the_float32_bound(fill, shape):
    case = Case(shape=shape, dtype="float32", fill=fill)
    assert judge(SPEC, case, lambda A, B: as_tf32(A) @ as_tf32(B)) > 4


def test_tf32_operands_are_outside_the_float32_bound_for_long_rows():
    assert judge(SPEC, LONG, lambda A, B: as_tf32(A) @ as_tf32(B)) > 2


def test_float16_operands_are_outside_the_float32_bound():
    def half(A, B):
        return A.half().float() @ B.half().float()

    assert judge(SPEC, filled(SPEC, "normal"), half) > 4
    assert judge(SPEC, filled(SPEC, "beyond_float16"), half) > 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_the_input_dtype_are_outside_the_bound(dtype):
    def low_precision(A, B):
        total = torch.zeros(A.shape[0], B.shape[1], dtype=A.dtype)
        for k in range(A.shape[1]):
            total += A[:, k, None] * B[None, k, :]
        return total

    for fill in ("normal", "positive"):
        assert judge(SPEC, filled(SPEC, fill, dtype), low_precision) > 4


def test_eight_bit_operands_are_outside_the_bound():
    def quantised(A, B):
        a, b = A.float().abs().max() / 127, B.float().abs().max() / 127
        return (((A / a).round() @ (B / b).round()) * a * b).to(A.dtype)

    assert judge(SPEC, filled(SPEC, "normal", "float16"), quantised) > 4
    assert judge(SPEC, filled(SPEC, "outlier", "bfloat16"), quantised) > 4
