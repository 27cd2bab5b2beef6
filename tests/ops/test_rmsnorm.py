from __future__ import annotations

import torch

from autokernel.ops.rmsnorm import SPEC
from tests.ops.judging import filled, judge, worst


def test_reference_is_torch_rms_norm():
    x, weight = torch.randn(5, 33, dtype=torch.float64), torch.randn(33, dtype=torch.float64)
    torch.testing.assert_close(
        SPEC.reference(x, weight, eps=1e-3), torch.nn.functional.rms_norm(x, (33,), weight, 1e-3)
    )


def test_torch_rms_norm_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("rmsnorm")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


def test_eps_outside_the_root_is_outside_the_bound_for_tiny_values():
    def outside(x, weight, eps=1e-6):
        root = x.float().square().mean(-1, keepdim=True).sqrt()
        return (x.float() / (root + eps) * weight.float()).to(x.dtype)

    assert judge(SPEC, filled(SPEC, "tiny"), outside) > 1
    assert judge(SPEC, filled(SPEC, "normal", "float16", eps=1e-2), outside) > 1


def test_squares_in_float16_are_outside_the_bound_for_large_values():
    def half_squares(x, weight, eps=1e-6):
        return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight).to(x.dtype)

    assert judge(SPEC, filled(SPEC, "large", "float16"), half_squares) > 1


def test_the_input_times_the_weight_is_outside_the_bound():
    def not_normalised(x, weight, eps=1e-6):
        return x * weight

    assert all(judge(SPEC, filled(SPEC, "normal", dtype), not_normalised) > 1 for dtype in SPEC.dtypes)
