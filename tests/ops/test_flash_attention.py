from __future__ import annotations

import dataclasses

import pytest
import torch

from autokernel.ops.flash_attention import SPEC, probabilities
from autokernel.ops.spec import Case
from tests.ops.judging import as_tf32, filled, in_float64, judge, make_inputs, worst

LONG = Case(shape={"B": 1, "H": 1, "S": 2048, "D": 128}, dtype="float32")


def by_scores(change):
    """Attention in float32, but with ``change(scores)`` put through softmax."""

    def kernel(Q, K, V, causal=True, sm_scale=None):
        scores = Q.float() @ K.float().transpose(-1, -2) * (Q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
        hidden = (
            torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) if causal else torch.zeros((), dtype=torch.bool)
        )
        return (torch.softmax(change(scores).masked_fill(hidden, -torch.inf), -1) @ V.float()).to(Q.dtype)

    return kernel


@pytest.mark.parametrize("options", SPEC.options)
def test_reference_is_torch_attention(options):
    case = dataclasses.replace(filled(SPEC, "normal"), options=options)
    inputs = in_float64(make_inputs(SPEC, case))
    torch.testing.assert_close(SPEC.reference(*inputs, **options), SPEC.baseline(*inputs, **options))


def test_torch_attention_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


@pytest.mark.parametrize("causal", [True, False])
def test_a_float32_attention_of_long_rows_is_within_half_the_bound(causal):
    case = dataclasses.replace(LONG, options={"causal": causal})
    assert judge(SPEC, case, by_scores(lambda scores: scores)) <= 0.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fill", ["normal", "mixed_heads", "rising", "value_mean", "value_outlier"])
def test_probabilities_rounded_before_they_meet_the_values_are_within_half_the_bound(dtype, fill):
    def as_fused_kernels_do(Q, K, V, causal=True, sm_scale=None):
        scores = Q.float() @ K.float().transpose(-1, -2) * Q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
        terms = (scores - scores.amax(-1, keepdim=True)).exp()
        return (terms.to(Q.dtype).float() @ V.float() / terms.sum(-1, keepdim=True)).to(Q.dtype)

    assert judge(SPEC, filled(SPEC, fill, dtype), as_fused_kernels_do) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("flash_attention")["ratios"]
    # The interpreter cuts float32 off on its way to bfloat16 where a device rounds: up to twice the error.
    assert max(ratio for label, ratio in ratios.items() if "bfloat16" in label) <= 0.9
    assert max(ratio for label, ratio in ratios.items() if "bfloat16" not in label) <= 0.5


@pytest.mark.parametrize("case", [*[Case(shape=shape, dtype="float32") for shape in SPEC.shapes], LONG])
def test_tf32_operands_are_outside_the_float32_bound(case):
    def tf32(Q, K, V, causal=True, sm_scale=None):
        return as_tf32(probabilities(as_tf32(Q), as_tf32(K), causal, sm_scale)) @ as_tf32(V)

    assert judge(SPEC, case, tf32) > 2


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_ignored_options_are_outside_the_bound(dtype):
    def always_causal(Q, K, V, causal=True, sm_scale=None):
        return SPEC.baseline(Q, K, V, sm_scale=sm_scale)

    def own_scale(Q, K, V, causal=True, sm_scale=None):
        return SPEC.baseline(Q, K, V, causal)

    assert judge(SPEC, filled(SPEC, "normal", dtype, causal=False), always_causal) > 10
    assert judge(SPEC, filled(SPEC, "normal", dtype, sm_scale=0.3), own_scale) > 10


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_a_window_of_64_keys_is_outside_the_bound(dtype):
    def window(scores):
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).tril(-64), -torch.inf)

    for fill in ("normal", "needle"):
        assert judge(SPEC, filled(SPEC, fill, dtype), by_scores(window)) > 10


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_exponentials_without_the_row_maximum_are_outside_the_bound_for_mixed_heads(dtype):
    def no_maximum(Q, K, V, causal=True, sm_scale=None):
        scores = Q.float() @ K.float().transpose(-1, -2) * Q.shape[-1] ** -0.5
        terms = scores.exp().tril()
        return (terms @ V.float() / terms.sum(-1, keepdim=True)).to(Q.dtype)

    assert judge(SPEC, filled(SPEC, "normal", dtype), no_maximum) <= 0.5
    assert judge(SPEC, filled(SPEC, "mixed_heads", dtype), no_maximum) > 1


def test_padding_keys_of_score_zero_are_outside_the_bound():
    def padded(Q, K, V, causal=True, sm_scale=None):
        wide = [torch.nn.functional.pad(value.float(), (0, 0, 0, 10)) for value in (Q, K, V)]
        return SPEC.reference(*wide, causal, sm_scale)[..., : Q.shape[-2], :].to(Q.dtype)

    assert judge(SPEC, filled(SPEC, "normal", "bfloat16"), padded) <= 0.5
    assert judge(SPEC, filled(SPEC, "normal", "float16", causal=False), padded) > 1
    assert judge(SPEC, filled(SPEC, "opposed", "bfloat16", causal=False), padded) > 10
