"""Comparison with the right answer: ulp, bounds, NaN, infinities, PyTorch's own error."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from autokernel import ops
from autokernel.ops.spec import Case, KernelSpec, Magnitude
from autokernel.verdict import CaseResult, Status
from autokernel.verifier.golden import BASELINE_ALLOWANCE, OUT_ULPS, Golden, compare, golden, ulp

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
DTYPES = [HALF, BRAIN, SINGLE]


def exactly(*values: float, slack: float = 0.0, baseline: torch.Tensor | None = None) -> Golden:
    """A golden value with a given slack; the baseline is right unless one is given."""
    value = torch.tensor(values, dtype=torch.float64)
    return Golden(value, torch.tensor(slack, dtype=torch.float64), lambda: value if baseline is None else baseline)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_ulp_is_the_gap_to_the_next_number(dtype):
    for value in (1.0, 1.9, 2.0, 3.7, 1000.0, 0.1):
        here = torch.tensor(value, dtype=dtype)
        gap = ulp(here.double(), dtype)
        assert (here.double() + gap).to(dtype).double() == here.double() + gap, "one ulp up is a number"
        assert (here.double() + gap / 2.001).to(dtype) == here, "less than half an ulp up rounds back"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ulp_of_zero_and_of_infinity_are_those_of_the_range(dtype):
    facts = torch.finfo(dtype)

    gaps = ulp(torch.tensor([0.0, math.inf, -facts.max], dtype=torch.float64), dtype)

    assert gaps[0] == facts.tiny * facts.eps
    assert gaps[1] == gaps[2] == 2.0 ** (math.frexp(facts.max)[1] - 1) * facts.eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_error_within_the_ulps_agrees_and_one_beyond_does_not(dtype):
    allowed = int(OUT_ULPS[dtype])
    actual = torch.ones(9, dtype=dtype)
    actual[3] += allowed * torch.finfo(dtype).eps
    within = compare(actual, exactly(*[1.0] * 9))
    actual[5] += (allowed + 1) * torch.finfo(dtype).eps
    beyond = compare(actual, exactly(*[1.0] * 9))

    assert (within.agrees, within.mismatched, within.max_ulp, within.worst) == (True, 0, allowed, (3,))
    assert (beyond.agrees, beyond.mismatched, beyond.max_ulp, beyond.worst) == (False, 1, allowed + 1, (5,))
    assert beyond.got == 1 + (allowed + 1) * torch.finfo(dtype).eps
    assert beyond.expected == 1.0
    assert beyond.bound == allowed * torch.finfo(dtype).eps
    assert beyond.error_over_bound == pytest.approx((allowed + 1) / allowed)


def test_the_slack_widens_the_bound_whatever_the_ulp():
    assert not compare(torch.tensor([1e-3]), exactly(0.0)).agrees
    assert compare(torch.tensor([1e-3]), exactly(0.0, slack=1.1e-3)).agrees


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_where_a_number_is_expected_is_infinitely_wrong(wrong):
    comparison = compare(torch.tensor([1.0, wrong]), exactly(1.0, 2.0, slack=1e30))

    assert (comparison.mismatched, comparison.error_over_bound, comparison.worst) == (1, math.inf, (1,))


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_in_the_right_answer_must_come_back_alike(special):
    assert compare(torch.tensor([special, 1.0]), exactly(special, 1.0)).agrees
    others = [0.0, 1e38, math.nan, math.inf, -math.inf]
    for other in others:
        if other == special or math.isnan(other) and math.isnan(special):
            continue
        assert not compare(torch.tensor([other, 1.0]), exactly(special, 1.0, slack=1e38)).agrees


def test_a_result_beyond_the_range_of_the_dtype_may_be_infinite_or_the_largest_number():
    for got in (math.inf, 65504.0):
        assert compare(torch.tensor([got], dtype=HALF), exactly(70000.0)).agrees
    for got in (-math.inf, 60000.0, math.nan):
        assert not compare(torch.tensor([got], dtype=HALF), exactly(70000.0)).agrees
    assert not compare(torch.tensor([math.inf], dtype=HALF), exactly(60000.0)).agrees


def test_pytorchs_own_error_raises_the_bound_up_to_the_allowance():
    eps = torch.finfo(SINGLE).eps
    off = lambda times: torch.tensor([1.0 + times * OUT_ULPS[SINGLE] * eps])  # noqa: E731

    raised = compare(off(2.0), exactly(1.0, baseline=off(2.5)))
    not_raised = compare(off(2.0), exactly(1.0, baseline=off(0.5)))
    beyond = compare(off(2.0 * BASELINE_ALLOWANCE), exactly(1.0, baseline=off(100.0)))

    assert raised.agrees and "2.50 times" in raised.note and raised.error_over_bound == pytest.approx(0.8)
    assert not not_raised.agrees and not_raised.note == ""
    assert not beyond.agrees


def test_the_error_that_is_shown_is_that_of_the_element_with_the_bound():
    expected = exactly(1.0, 4096.0)  # the largest error is the second's, the largest part of its bound the first's
    actual = torch.tensor([1.0 + 6 * 2.0**-23, 4096.0 + 2 * 2.0**-11])
    found = compare(actual, expected)
    case = CaseResult(
        label="", status=Status.PASS, max_error=found.max_error, bound=found.bound,
        error_over_bound=found.error_over_bound,
    )  # fmt: skip

    assert found.worst == (0,)
    assert case.max_error == 2 * 2.0**-11
    assert case.error == pytest.approx(6 * 2.0**-23)


def test_a_baseline_that_gives_nan_raises_no_bound():
    wrong = torch.tensor([1.0 + 16 * torch.finfo(SINGLE).eps])

    assert not compare(wrong, exactly(1.0, baseline=torch.tensor([math.nan]))).agrees


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_judged_alike_whether_or_not_an_infinity_stands_beside_them(dtype):
    generator = torch.Generator().manual_seed(0)
    right = [float(value) for value in torch.randn(500, generator=generator).exp()]
    actual = torch.tensor(right, dtype=torch.float64) * (1 + torch.finfo(dtype).eps * torch.arange(500) / 50)
    alone = compare(actual.to(dtype), exactly(*right, slack=1e-9))
    beside = compare(torch.cat([actual, torch.tensor([math.inf])]).to(dtype), exactly(*right, math.inf, slack=1e-9))

    assert 0 < alone.mismatched < 500
    assert dataclasses.replace(alone, elements=501) == beside


def test_a_scalar_and_an_empty_result_can_be_compared():
    scalar = Golden(torch.tensor(2.0, dtype=torch.float64), torch.tensor(0.0), lambda: torch.tensor(2.0))
    empty = Golden(torch.zeros(0, 3, dtype=torch.float64), torch.tensor(0.0), lambda: torch.zeros(0, 3))

    assert compare(torch.tensor(2.0), scalar).agrees
    wrong = compare(torch.tensor(3.0), scalar)
    assert (wrong.agrees, wrong.worst, wrong.got, wrong.expected) == (False, (), 3.0, 2.0)
    assert (compare(torch.zeros(0, 3), empty).agrees, compare(torch.zeros(0, 3), empty).elements) == (True, 0)


def test_the_right_answer_is_computed_in_float64_from_the_rounded_inputs():
    spec = ops.get("reduce")
    x = torch.tensor([[1.0, 2.0**-12, 2.0**-12, -1.0]], dtype=HALF)

    right = golden(spec, Case(shape={"M": 1, "N": 4}, dtype="float16"), (x,))

    assert right.value.dtype is torch.float64
    assert right.value.item() == 2.0**-11


def test_a_reference_that_does_not_stay_in_float64_is_refused():
    spec = KernelSpec(
        name="narrow",
        reference=lambda x: x.float() * 2,
        make_inputs=lambda shape, dtype, generator: (torch.randn(shape["N"], generator=generator).to(dtype),),
        shapes=({"N": 4},),
    )

    with pytest.raises(TypeError, match="narrow.*float32.*float64"):
        golden(spec, Case(shape={"N": 4}, dtype="float32"), (torch.ones(4),))


def test_the_slack_grows_with_the_root_of_the_reduction_length_and_with_what_is_added_up():
    spec = KernelSpec(
        name="total",
        reference=lambda x: x.sum(-1),
        make_inputs=lambda shape, dtype, generator: (torch.randn(shape["N"], generator=generator).to(dtype),),
        shapes=({"N": 4},),
        reduction_length=lambda shape: shape["N"],
        magnitude=lambda x: Magnitude(accumulated=x.abs().sum(-1)),
    )

    def slack(n: int, value: float) -> float:
        inputs = (torch.full((n,), value),)
        return float(golden(spec, Case(shape={"N": n}, dtype="float32"), inputs).slack)

    assert slack(400, 1.0) == pytest.approx(8 * slack(100, 1.0))  # twice the root, four times the terms
    assert slack(100, 5.0) == pytest.approx(5 * slack(100, 1.0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["rmsnorm", "matmul", "softmax", "cross_entropy"])
def test_a_derived_bound_accepts_pytorch_and_rejects_an_error_of_a_percent(name, dtype):
    shipped = ops.get(name)
    spec = KernelSpec(
        name=name,
        reference=shipped.reference,
        make_inputs=shipped.make_inputs,
        shapes=shipped.shapes,
        baseline=shipped.baseline,
    )
    case = Case(shape=shipped.shapes[-1], dtype=dtype)
    inputs = spec.make_inputs(case.shape, getattr(torch, dtype), torch.Generator().manual_seed(5))
    right = golden(spec, case, inputs)
    result = HALF if dtype == "float16" else BRAIN if dtype == "bfloat16" else SINGLE
    if name == "cross_entropy":
        result = SINGLE
    plain = (shipped.baseline or shipped.reference)(*inputs).to(result)

    assert compare(plain, right).agrees
    if dtype == "float32":
        assert not compare((right.value * 1.01).to(result), right).agrees
    assert not compare((right.value * 1.5).to(result), right).agrees
