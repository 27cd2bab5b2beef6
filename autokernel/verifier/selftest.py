"""Test a spec before it is trusted: wrong answers must fail on it.

For each of a few cases, answers that a lazy or broken kernel would give are compared with the right
one.  A spec on which one of them passes everywhere would accept that kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autokernel.errors import InvalidSpec
from autokernel.ops.spec import Case, KernelSpec, dtype_named
from autokernel.verifier.golden import Golden, compare, golden
from autokernel.verifier.plan import fill_names
from autokernel.verifier.trial import make_case_inputs

__all__ = ["check_spec"]

Fake = Callable[[Golden, Golden, Sequence[Tensor]], "Tensor | None"]


def _one_wrong_row(right: Golden, _other: Golden, _inputs: Sequence[Tensor]) -> Tensor | None:
    if right.value.dim() == 0 or right.value.shape[0] < 2:
        return None
    wrong = right.value.clone()
    wrong[-1] = right.value[0] + 1
    return wrong


def _input_itself(right: Golden, _other: Golden, inputs: Sequence[Tensor]) -> Tensor | None:
    same = [value for value in inputs if value.shape == right.value.shape and value.is_floating_point()]
    return same[0].double() if same else None


def _constant(right: Golden, _other: Golden, _inputs: Sequence[Tensor]) -> Tensor | None:
    if right.value.numel() < 2:  # its mean would be the right answer
        return None
    return torch.full_like(right.value, float(right.value.nanmean()))


FAKES: dict[str, Fake] = {
    "zeros": lambda right, other, inputs: torch.zeros_like(right.value),
    "a constant": _constant,
    "one wrong row": _one_wrong_row,
    "an earlier result": lambda right, other, inputs: other.value if other.value.shape == right.value.shape else None,
    "its input": _input_itself,
}


def check_spec(spec: KernelSpec, device: str) -> None:
    """Make sure that wrong answers fail on ``spec``.

    Raises:
        InvalidSpec: The reference or the input maker raises, returns what it must not, is not
            deterministic, or a wrong answer passes; the message says which.
    """
    cases = [Case(shape=spec.shapes[-1], dtype=name) for name in spec.dtypes]
    cases += [Case(shape=spec.shapes[0], dtype=spec.dtypes[-1], fill=name) for name in fill_names(spec)[:4]]
    passed: dict[str, int] = {}
    tried: dict[str, int] = {}
    for case in cases:
        right, other, inputs = _answers(spec, case, device)
        dtype = min(map(dtype_named, spec.dtypes_of_result(inputs, case.options)), key=lambda one: one.itemsize)
        for name, fake in FAKES.items():
            answer = fake(right, other, inputs)
            if answer is None:
                continue
            tried[name] = tried.get(name, 0) + 1
            passed[name] = passed.get(name, 0) + compare(answer.to(dtype), right).agrees
    for name, count in tried.items():
        if passed[name] == count:
            raise InvalidSpec(
                f"spec {spec.name!r} cannot tell a right kernel from one that returns {name}: it passed on all {count} "
                "cases; make the inputs more varied, or the operation less trivial"
            )


def _bytes_of(value: Tensor) -> Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def _answers(spec: KernelSpec, case: Case, device: str) -> tuple[Golden, Golden, tuple[Tensor, ...]]:
    try:
        made = spec.make_inputs(case.shape, dtype_named(case.dtype), torch.Generator(device=device).manual_seed(1))
        if not isinstance(made, tuple) or not all(isinstance(value, Tensor) for value in made):
            raise TypeError("make_inputs must return a tuple of tensors")
        inputs = make_case_inputs(spec, case, 1, device)
        if not any(value.is_floating_point() for value in inputs):
            raise TypeError("make_inputs must return at least one floating-point tensor")
        again = make_case_inputs(spec, case, 1, device)
        if not all(torch.equal(_bytes_of(a), _bytes_of(b)) for a, b in zip(inputs, again, strict=False)):
            raise ValueError("make_inputs gave other values for the same generator state; draw from the generator only")
        right = golden(spec, case, inputs)
        return right, golden(spec, case, make_case_inputs(spec, case, 2, device)), inputs
    except Exception as error:
        raise InvalidSpec(
            f"spec {spec.name!r} fails on its own case {case.label}: {type(error).__name__}: {error}"
        ) from error
