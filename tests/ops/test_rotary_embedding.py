from __future__ import annotations

import pytest
import torch

from autokernel.ops.rotary_embedding import SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import cases, filled, judge, make_inputs, worst

HALVES = {"interleaved": False}


def test_reference_multiplies_each_pair_by_a_complex_number_of_size_one():
    x, cos, sin = make_inputs(SPEC, Case(shape=SPEC.shapes[1], dtype="float32"))
    x, angle = x.double(), torch.atan2(sin.double(), cos.double())
    pairs = torch.complex(x[..., 0::2], x[..., 1::2]) * torch.polar(torch.ones_like(angle), angle)
    y = SPEC.reference(x, angle.cos(), angle.sin())
    torch.testing.assert_close(y[..., 0::2], pairs.real)
    torch.testing.assert_close(y[..., 1::2], pairs.imag)


def test_reference_of_halves_is_that_of_neighbours_with_the_numbers_in_another_order():
    x, cos, sin = (value.double() for value in make_inputs(SPEC, Case(shape=SPEC.shapes[1], dtype="float32")))
    order = torch.arange(x.shape[-1]).reshape(2, -1).t().reshape(-1)  # 0, D/2, 1, D/2 + 1, ...
    expected = torch.empty_like(x)
    expected[..., order] = SPEC.reference(x[..., order], cos, sin)

    torch.testing.assert_close(SPEC.reference(x, cos, sin, interleaved=False), expected, rtol=0, atol=0)


def test_pytorchs_own_way_is_within_half_the_bound_everywhere_but_for_halves_in_half_precision():
    # Hugging Face's code rounds each product to the inputs' dtype.
    chosen = [case for case in cases(SPEC) if not case.options or case.dtype == "float32"]
    assert worst(SPEC, SPEC.baseline, chosen) <= 0.5
    assert any(case.options for case in chosen)
    rounded = judge(SPEC, Case(shape=SPEC.shapes[1], dtype="bfloat16", options=HALVES), SPEC.baseline)
    assert rounded > 1


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("rotary_embedding")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


def test_tables_rounded_to_bfloat16_are_outside_the_float32_bound():
    def rounded(x, cos, sin):
        return SPEC.baseline(x, cos.bfloat16(), sin.bfloat16())

    for fill in ("normal", "late_positions"):
        assert judge(SPEC, filled(SPEC, fill), rounded) > 100


def test_products_rounded_to_the_input_dtype_are_outside_the_bound():
    for dtype in ("float16", "bfloat16"):
        assert judge(SPEC, filled(SPEC, "normal", dtype), SPEC.reference) > 4


@pytest.mark.parametrize("interleaved", [True, False])
def test_a_kernel_that_always_turns_the_same_pairs_is_outside_the_bound_of_the_others(interleaved):
    def ignores(x, cos, sin, **_options):
        return SPEC.reference(x.float(), cos.float(), sin.float(), interleaved).to(x.dtype)

    other = {"interleaved": not interleaved}
    assert all(judge(SPEC, Case(shape=shape, dtype="bfloat16", options=other), ignores) > 100 for shape in SPEC.shapes)


def test_a_position_taken_from_the_head_is_outside_the_bound():
    def token_major(x, cos, sin):
        B, H, S, D = x.shape
        position = torch.arange(B * H * S).div(H, rounding_mode="floor") % S
        wide = [table[position].reshape(B, H, S, D // 2) for table in (cos, sin)]
        return SPEC.reference(x.float(), *(table.float() for table in wide)).to(x.dtype)

    assert all(judge(SPEC, Case(shape=shape, dtype="bfloat16"), token_major) > 100 for shape in SPEC.shapes)
