from __future__ import annotations

import pytest
import torch

from autokernel.ops.layernorm import SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import filled, judge, worst


def normalised(x, weight, bias, eps, variance):
    x = x.float()
    scale = torch.rsqrt(variance(x) + eps)
    return (x - x.mean(-1, keepdim=True)) * scale * weight.float() + bias.float()


def test_reference_is_torch_layer_norm():
    x, weight, bias = (torch.randn(n, dtype=torch.float64) for n in ((5, 33), (33,), (33,)))
    expected = torch.nn.functional.layer_norm(x, (33,), weight, bias, 1e-3)
    torch.testing.assert_close(SPEC.reference(x, weight, bias, eps=1e-3), expected)


def test_torch_layer_norm_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("layernorm")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_pass_variance_is_outside_the_bound_for_a_large_mean(dtype):
    def one_pass(x, weight, bias, eps=1e-5):
        def variance(x):
            return (x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()).clamp(min=0)

        return normalised(x, weight, bias, eps, variance).to(x.dtype)

    assert judge(SPEC, filled(SPEC, "normal", dtype), one_pass) <= 0.5
    assert judge(SPEC, filled(SPEC, "large_mean", dtype), one_pass) > 1


def test_variance_over_n_minus_1_is_outside_the_bound():
    def unbiased(x, weight, bias, eps=1e-5):
        return normalised(x, weight, bias, eps, lambda x: x.var(-1, keepdim=True)).to(x.dtype)

    for dtype in SPEC.dtypes:
        assert judge(SPEC, Case(shape=SPEC.shapes[0], dtype=dtype), unbiased) > 1


def test_a_fixed_eps_is_outside_the_bound_when_eps_is_given():
    def fixed(x, weight, bias, eps=1e-5):
        return SPEC.baseline(x, weight, bias)

    assert judge(SPEC, filled(SPEC, "normal", "bfloat16"), fixed) <= 0.5
    assert judge(SPEC, filled(SPEC, "normal", "float16", eps=1e-2), fixed) > 1


def test_a_missing_bias_is_outside_the_bound():
    def no_bias(x, weight, bias, eps=1e-5):
        return SPEC.baseline(x, weight, torch.zeros_like(bias), eps)

    assert judge(SPEC, filled(SPEC, "normal", "bfloat16"), no_bias) > 10
