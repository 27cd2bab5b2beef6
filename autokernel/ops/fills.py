"""Value patterns for inputs: what a kernel that is right only for tame values gets wrong.

Each function returns a `Fill`, which takes the spec's normal inputs and returns inputs of the same
shapes and dtypes with other values.  Values stay inside the dtype's range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops.spec import Fill, Shape

__all__ = [
    "ascending",
    "by_dtype",
    "cancelling",
    "constant",
    "derived",
    "descending",
    "large_mean",
    "leading_minus_inf",
    "lone_peaks",
    "offset",
    "only_last",
    "outlier",
    "positive",
    "replaced",
    "row_scales",
    "scaled",
    "together",
    "zeros",
]


def replaced(inputs: tuple[Tensor, ...], index: int, value: Tensor) -> tuple[Tensor, ...]:
    """Return ``inputs`` with ``value``, rounded to the old dtype and clamped to its range, at ``index``."""
    dtype = inputs[index].dtype
    if not dtype.is_floating_point:
        value = value.round()
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return (*inputs[:index], value.clamp(limits.min, limits.max).to(dtype), *inputs[index + 1 :])


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


def zero_columns(index: int) -> Fill:
    """Columns an eighth to a half of input ``index`` are zero: whole blocks of nothing, with something behind them."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index].double().clone()
        x[..., x.shape[-1] // 8 : x.shape[-1] // 2] = 0.0
        return replaced(inputs, index, x)

    return fill


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


def positive(index: int) -> Fill:
    """Input ``index`` without its signs: sums grow instead of cancelling, and low-precision sums stall."""
    return lambda inputs, shape, generator: replaced(inputs, index, inputs[index].double().abs())


def ascending(index: int, factor: float = 1.0) -> Fill:
    """Rows of input ``index`` sorted, times ``factor``: a running maximum rises in every block."""
    return lambda inputs, shape, generator: replaced(inputs, index, inputs[index].double().sort(dim=-1)[0] * factor)


def descending(index: int, span: float = 120.0) -> Fill:
    """Rows of input ``index`` fall evenly by ``span``: a maximum that gives way to slightly smaller values is lost."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index]
        ramp = torch.linspace(span / 2, -span / 2, x.shape[-1], dtype=torch.float64, device=x.device)
        return replaced(inputs, index, ramp.expand(x.shape))

    return fill


def cancelling(index: int, factor: float) -> Fill:
    """The second half of each row takes back the first half, ``factor`` times as large, up to the old values."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index].double().clone()
        half = x.shape[-1] // 2
        large = x[..., :half] * factor
        x[..., :half] += large
        x[..., half : 2 * half] -= large
        return replaced(inputs, index, x)

    return fill


def only_last(index: int) -> Fill:
    """Input ``index`` zero but for the last element of each row: a dropped tail loses everything."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = torch.zeros_like(inputs[index]).double()
        x[..., -1] = 1.0 + inputs[index][..., -1].double()
        return replaced(inputs, index, x)

    return fill


def leading_minus_inf(index: int, fraction: float = 0.75) -> Fill:
    """The first ``fraction`` of each row of input ``index`` is -inf, as in a masked softmax; never the whole row."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index].clone()
        x[..., : min(int(fraction * x.shape[-1]), x.shape[-1] - 1)] = float("-inf")
        return (*inputs[:index], x, *inputs[index + 1 :])

    return fill


def lone_peaks(index: int, height: float = 200.0) -> Fill:
    """One element of each row of input ``index`` stands ``height``, or two or three times that, above all others.

    A maximum that passes over it, or takes in a neighbour's, makes exp overflow or vanish.  The peaks of
    the first rows stand where that happens: at either end of the row, and of blocks of 16 to 128; those
    of the other rows at random.
    """

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        x = inputs[index].double().clone()
        rows = x.reshape(-1, x.shape[-1])
        n_rows, n_cols = rows.shape
        column = torch.randint(n_cols, (n_rows,), generator=generator, device=x.device)
        # Beside its own peak, the first row sees a higher one just after its end, the fourth just before its beginning.
        first = [15, 0, n_cols - 1, 16, 31, 32, 63, 64, 127, 128, n_cols - 2, 1]
        chosen = torch.tensor([min(max(one, 0), n_cols - 1) for one in first[:n_rows]], device=x.device)
        column[: len(chosen)] = chosen
        heights = height * (1 + torch.arange(n_rows, device=x.device) % 3)[:, None]
        rows.scatter_(1, column[:, None], rows.amax(dim=1, keepdim=True) + heights)
        return replaced(inputs, index, rows.reshape(x.shape))

    return fill


def by_dtype(default: Fill, **fills: Fill) -> Fill:
    """The fill named after the dtype of the first input, ``default`` for the dtypes not named.

    A mean of 1e4 leaves no spread in bfloat16, and 1e5 is no float16: such fills differ by dtype.
    """

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        return fills.get(str(inputs[0].dtype).removeprefix("torch."), default)(inputs, shape, generator)

    return fill


def together(*fills: Fill) -> Fill:
    """The fills one after another, each on the inputs that the one before made."""

    def fill(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
        for each in fills:
            inputs = each(inputs, shape, generator)
        return inputs

    return fill


def large_mean(index: int) -> Fill:
    """A mean that is large against the unit spread, as far as the dtype still resolves the spread."""
    return by_dtype(offset(index, 1e4), float16=offset(index, 300.0), bfloat16=offset(index, 30.0))


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
