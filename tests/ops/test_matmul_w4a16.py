from __future__ import annotations

import pytest
import torch

from autokernel.ops.matmul_w4a16 import SPEC, dequantised
from autokernel.ops.spec import Case
from tests.ops.judging import filled, judge, worst


def test_reference_takes_the_low_four_bits_first_and_applies_the_zero_and_scale_of_the_group():
    packed = torch.tensor([[0x21, 0x43] + [0x88] * 14 + [0xF0] * 16], dtype=torch.uint8)
    scale, zero = torch.tensor([[0.5, 2.0]]), torch.tensor([[1, 15]], dtype=torch.uint8)

    w = dequantised(packed, scale, zero)

    assert w.shape == (1, 64)
    assert w[0, :6].tolist() == [0.0, 0.5, 1.0, 1.5, 3.5, 3.5]
    assert w[0, 32:36].tolist() == [-30.0, 0.0, -30.0, 0.0]
    x = torch.zeros(2, 64)
    x[0, 3], x[1, 32] = 2.0, 1.0
    assert SPEC.reference(x, packed, scale, zero).tolist() == [[3.0], [-30.0]]


def test_quantised_weights_are_near_those_that_they_stand_for():
    shape = {"M": 1, "N": 64, "K": 256, "G": 32}
    _x, packed, scale, zero = SPEC.make_inputs(shape, torch.float16, torch.Generator().manual_seed(0))

    w = dequantised(packed, scale.double(), zero)

    assert (packed.dtype, zero.dtype, scale.shape) == (torch.uint8, torch.uint8, (64, 8))
    assert w.std() == pytest.approx(256**-0.5, rel=0.05)
    assert w.mean() == pytest.approx(0.0, abs=0.002)
    assert set((packed & 15).flatten().tolist()) == set(range(16))


@pytest.mark.parametrize("G", [8, 24, 128])
def test_a_group_size_that_fits_no_kernel_is_refused_with_its_value(G):
    with pytest.raises(ValueError, match=f"G={G} must be a power of two from 16 on, and divide K=64"):
        SPEC.make_inputs({"M": 1, "N": 1, "K": 64, "G": G}, torch.float16, torch.Generator())


def test_dequantising_first_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("matmul_w4a16")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_scale_that_is_applied_to_the_sum_of_its_group_is_within_half_the_bound(dtype):
    def by_groups(x, packed, scale, zero):
        groups = scale.shape[1]
        ones = torch.ones_like(scale, dtype=torch.float32)
        exact = dequantised(packed, ones, zero).unflatten(1, (groups, -1))
        sums = torch.einsum("mgk,ngk->mng", x.float().unflatten(1, (groups, -1)), exact)
        return (sums * scale.float()).sum(dim=-1).to(x.dtype)

    cases = [Case(shape={"M": 8, "N": 16, "K": 4096, "G": 128}, dtype=dtype)]
    cases += [filled(SPEC, fill, dtype) for fill in SPEC.fills]
    assert worst(SPEC, by_groups, cases) <= 0.5


def rounded_to_float8(x, packed, scale, zero):
    w = dequantised(packed, scale.float(), zero) * 256
    return (x.float() @ w.to(torch.float8_e4m3fn).float().T / 256).to(x.dtype)


def low_precision_sum(x, packed, scale, zero):
    w = dequantised(packed, scale, zero)
    total = torch.zeros(x.shape[0], w.shape[0], dtype=x.dtype)
    for k in range(x.shape[1]):
        total += x[:, k, None] * w[None, :, k]
    return total


def swapped_halves(x, packed, scale, zero):
    return SPEC.baseline(x, packed >> 4 | packed << 4, scale, zero)


def signed_codes(x, packed, scale, zero):
    return SPEC.baseline(x, packed, scale, torch.full_like(zero, 8))


def one_scale_per_row(x, packed, scale, zero):
    return SPEC.baseline(x, packed, scale[:, :1].expand(scale.shape), zero)


def next_groups_zero(x, packed, scale, zero):
    return SPEC.baseline(x, packed, scale, zero.roll(1, dims=1))


def dropped_last_group(x, packed, scale, zero):
    kept = scale.clone()
    kept[:, -1] = 0
    return SPEC.baseline(x, packed, kept, zero)


def seven_codes(x, packed, scale, zero):  # the highest bit is lost
    return SPEC.baseline(x, packed & 0x77, scale, zero)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "wrong",
    [rounded_to_float8, swapped_halves, signed_codes, one_scale_per_row, next_groups_zero, dropped_last_group]
    + [seven_codes],
)
def test_wrong_weights_are_outside_the_bound(wrong, dtype):
    ratios = [judge(SPEC, filled(SPEC, fill, dtype), wrong) for fill in ("normal", "extreme_codes", "group_scales")]
    assert max(ratios) > 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_the_input_dtype_are_outside_the_bound(dtype):
    case = Case(shape={"M": 4, "N": 32, "K": 4096, "G": 128}, dtype=dtype)
    assert judge(SPEC, case, low_precision_sum) > 1.5
