"""How the inputs of a covered operation lie in memory in the model, as a layout that timing cases have.

The strides are those that a kernel would be given: leading dimensions of row-wise operations are one, heads and
positions stand in the operation's order, and the transpose that a Linear takes of its weight is part of a product
but not of a gated MLP, whose operation takes the weights as they are.

Where inputs lie in several ways that are not contiguous, the largest input's counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from autokernel import ops
from autokernel.profiling.targets import Layout, Variant
from autokernel.verifier.layouts import name_of

__all__ = ["by_heads", "layout_of"]

_Sides = tuple[Sequence[int], Sequence[int]]  # sizes, strides


def layout_of(operation: str, variant: Variant) -> str:
    """The layout of a covered variant's inputs, such as ``permuted:0``; ``contiguous`` where none is known."""
    spec = ops.get(operation)
    given = _GIVEN[operation](variant.inputs) if operation in _GIVEN else _first(variant.inputs)
    found: dict[int, tuple[str, int]] = {}
    for index, sides in given.items():
        word = "" if sides is None else name_of(*sides)
        if index in spec.strided_inputs and sides is not None and word not in ("", "contiguous"):
            found[index] = (word, math.prod(sides[0]))
    if not found:
        return "contiguous"
    word = max(found.values(), key=lambda one: one[1])[0]
    chosen = [index for index, (its_word, _elements) in sorted(found.items()) if its_word == word]
    return word if chosen == list(spec.strided_inputs) else f"{word}:{','.join(map(str, chosen))}"


def by_heads(x: Layout, table: Sequence[int], table_stride: Sequence[int] | None = None) -> Layout | None:
    """The tensor that a rotation turns as ``[B, H, S, D]``, from the sizes of the table that it is multiplied with.

    Where each sequence of a batch has a table of its own, all of their positions stand in one row: ``[1, H, B * S,
    D]``.  None if that would need a copy, or if the table has other dimensions.

    Args:
        x: Of four dimensions, heads before or after positions.
        table: Its sizes as it is broadcast; dimensions may be missing on the left.
        table_stride: Its strides; a batch with stride 0 shares one table.
    """
    sizes = (1,) * (4 - len(table)) + tuple(table)
    shape, stride = list(x.shape), list(x.stride)
    if len(shape) != 4 or len(sizes) != 4 or len(stride) != 4:
        return None
    if sizes[1] == shape[1] and sizes[2] == 1 and shape[1] > 1:
        shape[1], shape[2], stride[1], stride[2] = shape[2], shape[1], stride[2], stride[1]
    elif sizes[1] != 1 or sizes[2] != shape[2]:
        return None
    batch, heads, positions, width = shape
    shared = table_stride is not None and len(table_stride) == 4 and table_stride[0] == 0
    if sizes[0] > 1 and not shared:
        if sizes[0] != batch or stride[0] != positions * stride[2]:
            return None
        return Layout((1, heads, batch * positions, width), (0, stride[1], stride[2], stride[3]), x.dtype)
    return Layout((batch, heads, positions, width), tuple(stride), x.dtype)


def _sides(layout: Layout | None) -> _Sides | None:
    return None if layout is None or not layout.stride else (layout.shape, layout.stride)


def _first(inputs: Mapping[str, Layout]) -> dict[int, _Sides | None]:
    """A row-wise operation's first input as ``[M, N]``."""
    return {0: _rows(next(iter(inputs.values()), None))}


def _rows(x: Layout | None) -> _Sides | None:
    """All leading dimensions as one, where that takes no copy."""
    if x is None or not x.stride or not x.shape:
        return None
    shape, stride = [x.shape[-1]], [x.stride[-1]]
    rows, step = 1, 0
    for size, its_step in zip(reversed(x.shape[:-1]), reversed(x.stride[:-1]), strict=True):
        if size == 1:
            continue
        if rows > 1 and its_step != rows * step:
            return None
        step = its_step if rows == 1 else step
        rows *= size
    return [rows, *shape], [step or shape[0], *stride]


def _product(inputs: Mapping[str, Layout]) -> dict[int, _Sides | None]:
    return {index: _sides(inputs.get(name)) for index, name in enumerate(("A", "B"))}


def _attention(inputs: Mapping[str, Layout]) -> dict[int, _Sides | None]:
    """Heads of keys and values that serve several of queries are repeated, which makes them contiguous."""
    query = inputs["Q"]
    same = {name: one for name, one in inputs.items() if one.shape == query.shape}
    return {index: _sides(same.get(name)) for index, name in enumerate(("Q", "K", "V"))}


def _mlp(inputs: Mapping[str, Layout]) -> dict[int, _Sides | None]:
    given = {0: _rows(inputs.get("x"))}
    for index, name in enumerate(("w_gate", "w_up", "w_down"), start=1):
        seen = inputs.get(name)
        given[index] = None if seen is None else (seen.shape[::-1], seen.stride[::-1])
    return given


def _rotation(inputs: Mapping[str, Layout]) -> dict[int, _Sides | None]:
    table = inputs["cos"]
    return {0: _sides(by_heads(inputs["x"], table.shape, table.stride))}


_GIVEN: dict[str, Callable[[Mapping[str, Layout]], dict[int, _Sides | None]]] = {
    "flash_attention": _attention,
    "fused_mlp": _mlp,
    "matmul": _product,
    "rotary_embedding": _rotation,
}
