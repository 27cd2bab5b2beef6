"""The right answer in float64, and how far from it a right kernel may be.

The reference is computed in float64 from the inputs as the candidate gets them, already rounded to
their dtype.  An element agrees if its error is at most

    out_ulps * ulp(golden) + ACCUMULATION * sqrt(n) * 2**-24 * accumulated + ROUNDING * u * rounded

with *n* the reduction length, *u* the unit roundoff of the inputs' dtype, and ``accumulated`` and
``rounded`` the spec's `Magnitude`.  The first term is the rounding of the result (some kernels
round twice, and float32 results come from approximate reciprocals and exponentials); the second is
the rounding of float32 sums, which grows like the root of their length when errors are independent;
the third allows intermediates that kernels customarily round to the inputs' dtype.  If PyTorch's
own operator errs more than that on the same inputs, its error is the measure, up to four times the
bound.

Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, section 2.8
(rule of thumb: replace n by its root) and chapter 4.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autokernel.ops.spec import Case, KernelSpec, Magnitude, dtype_named

__all__ = ["Comparison", "Golden", "compare", "golden", "ulp"]

OUT_ULPS = {torch.float16: 2.0, torch.bfloat16: 2.0, torch.float32: 8.0, torch.float8_e4m3fn: 2.0}
ACCUMULATION = 3.0
ROUNDING = 4.0
BASELINE_ALLOWANCE = 4.0
_FLOAT32_ROUNDOFF = 2.0**-24
_FLOAT64_EXPONENT = 0x7FF << 52
_SIGNIFICAND_BITS = {
    torch.float8_e4m3fn: 4,
    torch.bfloat16: 8,
    torch.float16: 11,
    torch.float32: 24,
    torch.float64: 53,
}


def ulp(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The gap between neighbouring numbers of ``dtype`` around ``value``, as float64.

    Source: D. Goldberg, ACM Computing Surveys 23(1), 1991, section 1.2.
    """
    facts = torch.finfo(dtype)
    size = torch.nan_to_num(value.double().abs()).clamp_(min=facts.tiny, max=facts.max)
    power = size.view(torch.int64).bitwise_and_(_FLOAT64_EXPONENT).view(torch.float64)  # 2**floor(log2(size))
    return power.mul_(2.0 ** (1 - _SIGNIFICAND_BITS[dtype]))


@dataclasses.dataclass(frozen=True)
class Golden:
    """The right answer of one case.

    Attributes:
        value: float64, the reference's result.
        slack: float64, broadcastable to ``value``: the part of the bound that does not depend on
            the output's dtype.
        baseline: Computes PyTorch's own answer in the inputs' dtype; called only when in doubt.
    """

    value: Tensor
    slack: Tensor
    baseline: Callable[[], Tensor]


def _widen(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [value.double() if value.is_floating_point() else value for value in inputs]


def golden(spec: KernelSpec, case: Case, inputs: Sequence[Tensor]) -> Golden:
    """Compute the right answer of ``case`` for ``inputs``, on the device where they are."""
    options: Mapping[str, Any] = case.options
    wide = _widen(inputs)
    value = spec.reference(*wide, **options)
    if not isinstance(value, Tensor) or value.dtype != torch.float64:
        kind = getattr(value, "dtype", type(value).__name__)
        raise TypeError(
            f"the reference of {spec.name!r} returned {kind} for float64 inputs; it must return a float64 tensor"
        )
    magnitude = spec.magnitude(*wide, **options) if spec.magnitude else _estimate(spec, wide, options, value)
    slack = ACCUMULATION * max(spec.terms(case.shape), 1) ** 0.5 * _FLOAT32_ROUNDOFF * magnitude.accumulated.double()
    if magnitude.rounded is not None:
        slack = slack + ROUNDING * torch.finfo(dtype_named(case.dtype)).eps / 2 * magnitude.rounded.double()
    plain = spec.baseline or spec.reference
    return Golden(value, torch.nan_to_num(slack, nan=0.0, posinf=0.0), lambda: plain(*inputs, **options))


def _estimate(spec: KernelSpec, wide: list[Tensor], options: Mapping[str, Any], value: Tensor) -> Magnitude:
    """Estimate what errors scale with, by perturbing the inputs relatively and looking at the result.

    With random signs the change is the root of the sum of squares of the terms; Cauchy and Schwarz
    bound their absolute sum by root n times that, and the caller supplies one such factor.  Elements
    share the mean of their row, so that a chance cancellation does not make a bound too narrow.
    """
    generator = torch.Generator(device=value.device).manual_seed(0)
    step = 2.0**-20
    squares = torch.zeros_like(value)
    samples = 4
    for _sample in range(samples):
        moved = [
            x * (1 + step * (2.0 * torch.randint(0, 2, x.shape, generator=generator, device=x.device) - 1))
            if x.is_floating_point()
            else x
            for x in wide
        ]
        change = torch.nan_to_num((spec.reference(*moved, **options) - value) / step, nan=0.0, posinf=0.0, neginf=0.0)
        squares += change.square() / samples
    if value.dim():
        squares = torch.maximum(squares, squares.mean(dim=-1, keepdim=True))
    magnitude = torch.maximum(squares.sqrt(), torch.nan_to_num(value.abs(), nan=0.0, posinf=0.0))
    return Magnitude(accumulated=magnitude, rounded=magnitude)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How a kernel's output compares with the right answer.

    Attributes:
        mismatched: Elements outside their bound.
        elements: Elements compared.
        error_over_bound: Largest ratio of error to bound, infinite for a wrong NaN or infinity.
        max_error: Largest absolute error among finite elements.
        bound: The bound at the element with the largest ratio.
        max_ulp: Largest error in ulp of the output's dtype, among finite elements.
        worst: Index of the element with the largest ratio.
        got: The kernel's value there.
        expected: The right value there.
        note: What a reader must know, such as a bound raised to PyTorch's own error.
    """

    mismatched: int
    elements: int
    error_over_bound: float
    max_error: float
    bound: float
    max_ulp: float
    worst: tuple[int, ...]
    got: float
    expected: float
    note: str = ""

    @property
    def agrees(self) -> bool:
        return self.mismatched == 0


def compare(actual: Tensor, expected: Golden) -> Comparison:
    """Judge an output element by element.

    Args:
        actual: The output, in a dtype of `OUT_ULPS`, of the same shape as ``expected.value``.
        expected: From `golden`, on the same device.
    """
    ratio, error, bound, spacing = _ratios(actual, expected)
    note = ""
    limit = 1.0
    if ratio.numel() and bool((ratio > 1).any()) and bool((ratio <= BASELINE_ALLOWANCE).all()):
        plain = expected.baseline()
        if plain.shape == actual.shape and plain.dtype in OUT_ULPS:
            own = _ratios(plain.to(actual.dtype), expected)[0].max()
            if torch.isfinite(own) and float(own) > 1.0:
                limit = min(float(own), BASELINE_ALLOWANCE)
                note = f"bound raised {limit:.2f} times: PyTorch's own operator errs that far here"
    if ratio.numel() == 0:
        return Comparison(0, 0, 0.0, 0.0, 0.0, 0.0, (), 0.0, 0.0)
    flat = int(ratio.reshape(-1).argmax())
    worst = tuple(int(part) for part in torch.unravel_index(torch.tensor(flat), ratio.shape)) if ratio.dim() else ()
    finite = torch.nan_to_num(error, nan=0.0, posinf=0.0)
    return Comparison(
        mismatched=int((ratio > limit).sum()),
        elements=ratio.numel(),
        error_over_bound=float(ratio.max()) / limit,
        max_error=float(finite.max()),
        bound=float(bound.expand_as(ratio).reshape(-1)[flat]) * limit,
        max_ulp=float((finite / spacing).max()),
        worst=worst,
        got=float(actual.reshape(-1)[flat]),
        expected=float(expected.value.reshape(-1)[flat]),
        note=note,
    )


def _ratios(actual: Tensor, expected: Golden) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return error over bound, error, bound and ulp for each element."""
    value = expected.value
    largest = torch.finfo(actual.dtype).max
    spacing = ulp(value, actual.dtype)
    bound = OUT_ULPS[actual.dtype] * spacing + expected.slack
    got = actual.double()
    error = (got - value).abs_()
    if error.numel() and bool(torch.isfinite(error.max())) and float(value.abs().max()) <= largest:
        return error / bound, error, bound, spacing  # all are finite, and fit the dtype
    # A result that does not fit the dtype may be infinite or the largest number.
    target = value.clamp(-largest, largest)
    error = (got - target).abs()
    ratio = error / bound
    may_overflow = (value.abs() + bound >= largest) & (got == torch.inf * value.sign())
    ratio = torch.where(may_overflow, 0.0, ratio)
    special = ~torch.isfinite(value)
    same = (torch.isnan(value) & torch.isnan(got)) | (value == got)
    ratio = torch.where(special, torch.where(same, 0.0, torch.inf), ratio)
    # NaN where a number is expected, or an infinity out of place.
    return torch.nan_to_num(ratio, nan=torch.inf, posinf=torch.inf), error, bound, spacing
