from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from autokernel import starters
from autokernel.ops.matmul_fp8 import SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import filled, judge, worst
from tests.tuned.hopper import launches, load

FP8 = "float8_e4m3fn"
NARROW = {"out_dtype": "float16"}


def on_matrix_units(taken_out: int):
    """A kernel whose sums are cut as Hopper's matrix units cut them, and taken out into float32 after so many terms."""

    def kernel_fn(A, B, scale_a, scale_b, out_dtype="bfloat16"):
        a, b = A.double(), B.double()
        total = torch.zeros(A.shape[0], B.shape[0], dtype=torch.float32)
        inside = torch.zeros_like(total, dtype=torch.float64)
        for first in range(0, A.shape[1], 32):  # terms of one instruction, and what was added up before
            terms = a[:, None, first : first + 32] * b[None, :, first : first + 32]
            terms = torch.cat((terms, inside[..., None]), dim=-1)
            largest = terms.abs().amax(dim=-1, keepdim=True).clamp(min=2.0**-100)
            unit = torch.exp2(torch.floor(torch.log2(largest)) - 13)
            inside = (torch.trunc(terms / unit) * unit).sum(dim=-1)
            if (first + 32) % taken_out == 0:
                total += inside.float()
                inside.zero_()
        return ((total + inside.float()) * scale_a * scale_b.T).to(getattr(torch, out_dtype))

    return kernel_fn


def test_reference_scales_the_rows_of_either():
    A, B = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0]])
    scale_a, scale_b = torch.tensor([[1.0], [10.0]]), torch.tensor([[0.5]])
    assert SPEC.reference(A, B, scale_a, scale_b).tolist() == [[8.5], [195.0]]


def test_inputs_use_the_whole_range_of_the_format():
    A, B, scale_a, scale_b = SPEC.make_inputs(SPEC.shapes[-1], torch.float8_e4m3fn, torch.Generator().manual_seed(0))

    assert (A.dtype, B.dtype, scale_a.dtype, scale_b.dtype) == (*[torch.float8_e4m3fn] * 2, *[torch.float32] * 2)
    assert A.float().abs().amax(dim=1).tolist() == [448.0] * A.shape[0]
    assert (A.float() * scale_a).std() == pytest.approx(1.0, abs=0.05)


def test_the_baseline_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_pytorchs_scaled_product_is_within_half_the_bound():
    def scaled(A, B, scale_a, scale_b):
        return torch._scaled_mm(A, B.T, scale_a, scale_b.T, out_dtype=torch.bfloat16)

    assert judge(SPEC, Case(shape={"M": 64, "N": 48, "K": 1024}, dtype=FP8), scaled) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("matmul_fp8")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.parametrize("options", [{}, NARROW])
@pytest.mark.parametrize("fill", ["normal", "positive", "outlier", "largest"])
@pytest.mark.parametrize("K", [72, 4096])
def test_sums_of_matrix_units_that_are_taken_out_every_128_terms_are_within_the_bound(K, fill, options):
    case = Case(shape={"M": 40, "N": 40, "K": K}, dtype=FP8, fill=fill, options=options)
    assert judge(SPEC, case, on_matrix_units(128)) <= 0.75


def test_sums_that_stay_in_the_matrix_units_are_outside_the_bound():
    case = Case(shape={"M": 40, "N": 40, "K": 8192}, dtype=FP8, fill="positive", options=NARROW)
    assert judge(SPEC, case, on_matrix_units(8192)) > 1.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_in_half_width_are_outside_the_bound(dtype):
    def low_precision(A, B, scale_a, scale_b, out_dtype="bfloat16"):
        total = torch.zeros(A.shape[0], B.shape[0], dtype=dtype)
        a, b = (A.float() * scale_a).to(dtype), (B.float() * scale_b).to(dtype)
        for k in range(A.shape[1]):
            total += a[:, k, None] * b[None, :, k]
        return total.to(getattr(torch, out_dtype))

    for fill in ("normal", "positive"):
        assert judge(SPEC, filled(SPEC, fill, FP8, **NARROW), low_precision) > 1.5


@pytest.mark.parametrize(
    "wrong",
    [
        lambda A, B, a, b, out: (A @ B.T) * a,
        lambda A, B, a, b, out: (A @ B.T) * a.roll(1, 0) * b.T,
        lambda A, B, a, b, out: (A @ B.T) * a * b.mean(),
        lambda A, B, a, b, out: (A[:, :-8] @ B[:, :-8].T) * a * b.T,
        lambda A, B, a, b, out: (torch.where(A.abs() < 2.0**-6, 0.0, A) @ B.T) * a * b.T,
    ],
    ids=["no scale of B", "a neighbour's scale", "one scale for all of B", "a dropped tail", "no subnormal values"],
)
def test_a_wrong_product_is_outside_the_bound_on_some_values(wrong):
    def kernel_fn(A, B, scale_a, scale_b, out_dtype="bfloat16"):
        return wrong(A.float(), B.float(), scale_a, scale_b, out_dtype).to(getattr(torch, out_dtype))

    ratios = [judge(SPEC, filled(SPEC, fill, FP8), kernel_fn) for fill in ("normal", "row_scales", "subnormal")]
    assert max(ratios) > 4


def test_the_triton_starter_multiplies_float8_on_hoppers_matrix_units_and_takes_the_sum_out_of_them():
    pytest.importorskip("triton.backends.nvidia")
    inputs = SPEC.make_inputs({"M": 512, "N": 512, "K": 2048}, torch.float8_e4m3fn, torch.Generator())
    starter = load(Path(starters.__file__).parent / "triton" / "matmul_fp8.py")

    (launch,) = launches(lambda: starter.kernel_fn(*inputs))

    assert launch.has(r"wgmma\.mma_async\S+\.f32\.e4m3\.e4m3")
    assert launch.has(r"add\.(rn\.)?f32"), "the sum stays in the matrix units"
    assert launch.spilled_bytes == 0


def test_an_option_that_is_ignored_is_a_wrong_dtype():
    def kernel_fn(A, B, scale_a, scale_b, out_dtype="bfloat16"):
        return SPEC.baseline(A, B, scale_a, scale_b)

    assert judge(SPEC, filled(SPEC, "normal", FP8), kernel_fn) <= 0.5
    assert judge(SPEC, filled(SPEC, "normal", FP8, **NARROW), kernel_fn) == math.inf
