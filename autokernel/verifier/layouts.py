"""How inputs lie in memory: the views that callers pass besides contiguous tensors.

Each layout keeps the shape; all but ``broadcast`` keep the values.  Gaps between elements hold NaN
(all bits set), so a kernel that ignores strides computes nonsense instead of nearly the right thing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["BATCH_LAYOUTS", "LAYOUTS", "lay_out"]

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
    if layout == "contiguous":
        return tuple(inputs)
    arrange = {
        "padded": _padded,
        "strided": _strided,
        "transposed": _transposed,
        "offset": _offset,
        "broadcast": _broadcast,
        "permuted": _permuted,
        "cut": _cut,
    }[layout]
    return tuple(arrange(value) if index in which else value for index, value in enumerate(inputs))


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
