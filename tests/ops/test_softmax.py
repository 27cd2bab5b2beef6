from __future__ import annotations

import pytest
import torch

from autokernel.ops.softmax import SPEC
from tests.ops.judging import filled, judge, worst


def test_reference_is_torch_softmax():
    x = torch.randn(5, 33, dtype=torch.float64) * 20
    torch.testing.assert_close(SPEC.reference(x), torch.softmax(x, dim=-1))


def test_torch_softmax_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("softmax")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


def test_softmax_without_the_maximum_is_outside_the_bound_for_large_logits():
    assert judge(SPEC, filled(SPEC, "hundredfold"), lambda x: x.exp() / x.exp().sum(-1, keepdim=True)) > 1


def test_a_maximum_that_starts_at_zero_is_outside_the_bound_for_very_negative_logits():
    def starts_at_zero(x):
        shifted = (x - x.amax(-1, keepdim=True).clamp(min=0)).exp()
        return shifted / shifted.sum(-1, keepdim=True)

    assert judge(SPEC, filled(SPEC, "very_negative"), starts_at_zero) > 1


def test_an_online_softmax_that_does_not_guard_masked_heads_is_outside_the_bound():
    def unguarded(x, block=32):
        largest, total = torch.full(x.shape[:-1], -torch.inf), torch.zeros(x.shape[:-1])
        for part in x.float().split(block, dim=-1):
            new = torch.maximum(largest, part.amax(-1))
            total = total * (largest - new).exp() + (part - new[..., None]).exp().sum(-1)
            largest = new
        return ((x.float() - largest[..., None]).exp() / total[..., None]).to(x.dtype)

    assert judge(SPEC, filled(SPEC, "ascending"), unguarded) <= 0.5
    assert judge(SPEC, filled(SPEC, "masked_head"), unguarded) > 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_exponentials_rounded_to_the_input_dtype_before_they_are_added_are_outside_the_bound(dtype):
    def rounded(x):
        terms = (x - x.amax(-1, keepdim=True)).exp()
        total = terms[..., :1].clone()
        for i in range(1, x.shape[-1]):
            total += terms[..., i : i + 1]
        return terms / total

    assert judge(SPEC, filled(SPEC, "normal", dtype), rounded) > 1


def test_a_padding_lane_counted_as_zero_is_outside_the_bound():
    def padded(x):
        wide = torch.nn.functional.pad(x.float(), (0, 1))
        return torch.softmax(wide, -1)[..., :-1].to(x.dtype)

    assert judge(SPEC, filled(SPEC, "very_negative", "bfloat16"), padded) > 1


def test_float16_exponentials_are_outside_the_float32_bound():
    def half_exponentials(x):
        terms = (x - x.amax(-1, keepdim=True)).exp().half().float()
        return terms / terms.sum(-1, keepdim=True)

    assert judge(SPEC, filled(SPEC, "normal"), half_exponentials) > 4
