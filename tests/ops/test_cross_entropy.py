from __future__ import annotations

import pytest
import torch

from autokernel.ops.cross_entropy import SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import filled, in_float64, judge, make_inputs, worst


def rows_loss(logits, targets):
    chosen = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    return torch.where(targets == -100, 0.0, torch.logsumexp(logits, 1) - chosen)


@pytest.mark.parametrize("fill", ["normal", "some_ignored", "all_ignored", "outermost_targets", "confident"])
def test_reference_is_torch_cross_entropy(fill):
    logits, targets = in_float64(make_inputs(SPEC, filled(SPEC, fill)))
    expected = torch.nn.functional.cross_entropy(logits, targets)
    torch.testing.assert_close(SPEC.reference(logits, targets), expected, equal_nan=True)


def test_the_mean_of_no_rows_is_nan():
    assert SPEC.reference(*in_float64(make_inputs(SPEC, filled(SPEC, "all_ignored")))).isnan()


def test_torch_cross_entropy_is_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("cross_entropy")["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


def test_a_result_in_the_logits_dtype_is_accepted():
    def rounded(logits, targets):
        return SPEC.baseline(logits, targets).to(logits.dtype)

    assert judge(SPEC, filled(SPEC, "normal", "bfloat16"), rounded) <= 0.5


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_ignored_rows_that_are_counted_are_outside_the_bound(dtype):
    def all_rows(logits, targets):
        return rows_loss(logits.float(), targets).mean()

    def as_class_zero(logits, targets):
        return SPEC.baseline(logits, targets.clamp(min=0))

    case = filled(SPEC, "some_ignored", dtype)
    assert judge(SPEC, case, all_rows) > 10
    assert judge(SPEC, case, as_class_zero) > 10


def test_a_log_sum_without_the_maximum_is_outside_the_bound_for_large_logits():
    def no_maximum(logits, targets):
        x = logits.float()
        return (x.exp().sum(1).log() - x.gather(1, targets[:, None])[:, 0]).mean()

    assert judge(SPEC, filled(SPEC, "hundredfold"), no_maximum) > 1


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_a_constant_is_outside_the_bound(dtype):
    def guess(logits, targets):
        return torch.tensor(logits.shape[1]).log() + 0.5

    assert judge(SPEC, filled(SPEC, "normal", dtype), guess) > 10


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_losses_rounded_to_the_logits_dtype_are_outside_the_bound_of_a_float32_result(dtype):
    def rounded(logits, targets):
        return torch.log_softmax(logits, 1).gather(1, targets[:, None]).float().mean().neg()

    assert judge(SPEC, Case(shape=SPEC.shapes[0], dtype=dtype), rounded) > 1
