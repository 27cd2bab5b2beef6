"""How inputs lie in memory: the views that callers pass besides contiguous tensors.

Each layout keeps the shape; all but ``broadcast`` keep the values.  Gaps between elements hold NaN
(all bits set), so a kernel that ignores strides computes nonsense instead of nearly the right thing.

A layout is a word, and then all inputs that an operation takes as views have it; or a word with the
numbers of some inputs, such as ``transposed:1`` or ``permuted:0,1``, and the others are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autokernel.errors import UsageError

__all__ = ["BATCH_LAYOUTS", "LAYOUTS", "check_layout", "lay_out", "layout_named", "name_of"]

LAYOUTS = ("contiguous", "padded", "strided", "transposed", "offset", "broadcast")
BATCH_LAYOUTS = ("permuted", "cut")  # for inputs of three dimensions or more


def lay_out(inputs: Sequence[Tensor], layout: str, which: Sequence[int]) -> tuple[Tensor, ...]:
    """Return ``inputs`` with those at the indices ``which`` laid out as ``layout`` says.

    ``padded``: rows further apart than they are long.  ``strided``: every other element of a wider
    tensor.  ``transposed``: the last two dimensions swapped in memory.  ``offset``: starting at an
    odd element of the storage.  ``broadcast``: the first dimension has stride zero.  ``permuted``: the
    second- and third-last dimensions swapped in memory, as heads and positions often are.  ``cut``: the
    second-last dimension cut off a longer one, so that rows are not evenly apart over the whole tensor.
    """
    word, chosen = layout_named(layout, which)
    if word == "contiguous":
        return tuple(inputs)
    arrange = {
        "padded": _padded,
        "strided": _strided,
        "transposed": _transposed,
        "offset": _offset,
        "broadcast": _broadcast,
        "permuted": _permuted,
        "cut": _cut,
    }[word]
    return tuple(arrange(value) if index in chosen else value for index, value in enumerate(inputs))


def layout_named(layout: str, which: Sequence[int]) -> tuple[str, Sequence[int]]:
    """The word of a layout, and the inputs that have it.

    >>> layout_named("transposed:1", (0, 1))
    ('transposed', [1])
    """
    word, colon, numbers = layout.partition(":")
    return word, [int(number) for number in numbers.split(",")] if colon else which


def check_layout(layout: str, which: Sequence[int]) -> None:
    """Make sure that inputs can be timed in a layout.

    Raises:
        UsageError: It is none, it changes the values, or it names inputs that are not taken as views.
    """
    words = [word for word in (*LAYOUTS, *BATCH_LAYOUTS) if word != "broadcast"]
    try:
        word, chosen = layout_named(layout, which)
    except ValueError:
        word, chosen = "", which
    if word not in words or not set(which).issuperset(chosen):
        raise UsageError(
            f"the layout {layout!r} is none that inputs are timed in; use {', '.join(words)}, for some inputs only "
            f"followed by their numbers, as in 'transposed:1' (here taken as views: {', '.join(map(str, which))})"
        )


def name_of(shape: Sequence[int], stride: Sequence[int]) -> str:
    """Which layout a tensor has, by its sizes and its strides in elements; "" if it is none of those told apart here.

    >>> name_of((4, 8), (1, 4))
    'transposed'
    """
    if _dense(shape, stride):
        return "contiguous"
    if len(shape) < 2:
        return ""
    if _dense(*_swapped(shape, stride, -1, -2)):
        return "transposed"
    if len(shape) > 2 and _dense(*_swapped(shape, stride, -2, -3)):
        return "permuted"
    if stride[-1] != 1:
        return ""
    even = [stride[i] == stride[i + 1] * shape[i + 1] for i in range(len(shape) - 1)]
    if stride[-2] > shape[-1] and all(even[:-1]):
        return "padded"
    cut = len(shape) > 2 and even[-1] and stride[-3] > stride[-2] * shape[-2] and all(even[:-2])
    return "cut" if cut else ""


def _dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _swapped(shape: Sequence[int], stride: Sequence[int], one: int, other: int) -> tuple[list[int], list[int]]:
    sizes, steps = list(shape), list(stride)
    sizes[one], sizes[other] = sizes[other], sizes[one]
    steps[one], steps[other] = steps[other], steps[one]
    return sizes, steps


def _garbage(value: Tensor, *size: int) -> Tensor:
    raw = torch.full((*size, value.element_size()), 0xFF, dtype=torch.uint8, device=value.device)
    return raw.view(value.dtype).squeeze(-1)


def _padded(value: Tensor) -> Tensor:
    if value.dim() < 2:
        return _offset(value)
    view = _garbage(value, *value.shape[:-1], value.shape[-1] + 3)[..., : value.shape[-1]]
    return view.copy_(value)


def _strided(value: Tensor) -> Tensor:
    if value.dim() == 0:
        return value
    return _garbage(value, *value.shape[:-1], 2 * value.shape[-1])[..., ::2].copy_(value)


def _transposed(value: Tensor) -> Tensor:
    if value.dim() < 2:
        return _strided(value)
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def _offset(value: Tensor) -> Tensor:
    return _garbage(value, value.numel() + 1)[1:].copy_(value.reshape(-1)).reshape(value.shape)


def _broadcast(value: Tensor) -> Tensor:
    if value.dim() < 2:
        return value
    return value[:1].clone().expand(value.shape)


def _permuted(value: Tensor) -> Tensor:
    if value.dim() < 3:
        return value
    return value.transpose(-2, -3).contiguous().transpose(-2, -3)


def _cut(value: Tensor) -> Tensor:
    if value.dim() < 3:
        return value
    *leading, rows, cols = value.shape
    return _garbage(value, *leading, rows + 1, cols)[..., :rows, :].copy_(value)
