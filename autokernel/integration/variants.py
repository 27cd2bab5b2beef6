"""Other shapes than the given ones: a model is used on more than what it was profiled on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autokernel.integration.trees import Call, leaves, mapped

__all__ = ["variants"]


def variants(call: Call) -> list[tuple[str, Call]]:
    """Calls with another batch and another length, by name.

    The batch is the first dimension of the first tensor, the length its second dimension if the
    tensor is ``[B, S]`` of integers or ``[B, S, N]``.  All tensors that share a size at its place
    change with it.  Whether the model accepts the outcome is found out by calling it.
    """
    first = next((v for _p, v in leaves((call.args, dict(call.kwargs))) if isinstance(v, Tensor) and v.dim()), None)
    if first is None or first.shape[0] == 0:
        return []
    batch = first.shape[0]
    found: list[tuple[str, Callable[[Any], Any]]] = []
    if batch > 1:
        found.append(("batch 1", lambda v: v[:1] if v.dim() and v.shape[0] == batch else v))
    else:
        found.append(("batch 2", lambda v: torch.cat((v, v)) if v.dim() and v.shape[0] == 1 else v))
    integers = first.dim() == 2 and not first.is_floating_point()
    if (integers or first.dim() == 3) and first.shape[1] > 2:
        length = first.shape[1]
        shorter = length // 2 + 1
        found.append((f"length {shorter}", lambda v: _shortened(v, length, shorter)))
    return [(name, mapped(call, change)) for name, change in found]


def _shortened(value: Tensor, length: int, shorter: int) -> Tensor:
    """Cut every dimension of that length after the first, as a mask ``[B, 1, S, S]`` has two."""
    for dim in range(1, value.dim()):
        if value.shape[dim] == length:
            value = value.narrow(dim, 0, shorter)
    return value.clone()
