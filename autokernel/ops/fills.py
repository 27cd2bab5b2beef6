"""Value patterns for inputs: what a kernel that is right only for tame values gets wrong.

Each function returns a `Fill`, which takes the spec's normal inputs and returns inputs of the same
shapes and dtypes with other values.  Values stay inside the dtype's range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops.spec import Fill, Shape

__all__ = ["constant", "derived", "offset", "outlier", "replaced", "row_scales", "scaled", "zeros"]


def replaced(inputs: tuple[Tensor, ...], index: int, value: Tensor) -> tuple[Tensor, ...]:
    """Return ``inputs`` with ``value``, cast to the old dtype and clamped to its range, at ``index``."""
    old = inputs[index]
    limit = torch.finfo(old.dtype).max
    return (*inputs[:index], value.clamp(-limit, limit).to(old.dtype), *inputs[index + 1 :])


def scaled(index: int, factor: float) -> Fill:
    """All values of input ``index`` times ``factor``."""
    return lambda inputs, shape, generator: replaced(inputs, index, inputs[index].double() * factor)


def offset(index: int, shift: float) -> Fill:
    """All values of input ``index`` plus ``shift``: a mean far larger than the spread."""
    return lambda inputs, shape, generator: replaced(inputs, index, inputs[index].double() + shift)


def constant(index: int, value: float) -> Fill:
    """Input ``index`` filled with one value."""
    return lambda inputs, shape, generator: replaced(inputs, index, torch.full_like(inputs[index], value).double())


def zeros(index: int) -> Fill:
    """Input ``index`` filled with zeros."""
    return constant(index, 0.0)


def outlier(index: int, factor: float) -> Fill:
    """One random element of each row of input ``index`` times ``factor``."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index].double().clone()
        rows = x.reshape(-1, x.shape[-1])
        column = torch.randint(rows.shape[-1], (rows.shape[0], 1), generator=generator, device=x.device)
        rows.scatter_(1, column, rows.gather(1, column) * factor)
        return replaced(inputs, index, rows.reshape(x.shape))

    return fill


def row_scales(index: int, low: float = -6.0, high: float = 6.0) -> Fill:
    """Each row of input ``index`` times its own power of two, ``2**low`` to ``2**high``."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index].double()
        exponent = torch.rand(*x.shape[:-1], 1, generator=generator, device=x.device).double()
        return replaced(inputs, index, x * torch.exp2(low + (high - low) * exponent))

    return fill


def derived(inputs: tuple[Tensor, ...]) -> dict[str, Fill]:
    """The patterns for a spec that names none: each floating input zero, tiny, large and shifted."""
    patterns: dict[str, Fill] = {}
    for index, value in enumerate(inputs):
        if value.is_floating_point():
            patterns[f"zeros_{index}"] = zeros(index)
            patterns[f"tiny_{index}"] = scaled(index, 1e-3)
            patterns[f"large_{index}"] = scaled(index, 30.0)
            patterns[f"shifted_{index}"] = offset(index, 10.0)
            if value.dim() > 0:
                patterns[f"outlier_{index}"] = outlier(index, 100.0)
    return patterns
