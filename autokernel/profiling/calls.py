"""What is recorded of a pass: operator calls, the tensors that they saw, and the modules around them; plain data."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

__all__ = ["Call", "Frame", "TensorInfo"]


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A tensor as one call saw it.

    Attributes:
        value: Number that no other value of this pass has; changed in place, it becomes another value.
        shape: Sizes.
        stride: In elements.
        dtype: Such as ``float16``.
        device: Such as ``cuda:0``.
        stored: Elements that memory holds for it; fewer than the product of the sizes after ``expand``.
        offset: Of the first element in its storage, in elements.
        parameter: Name of the parameter or buffer that it is, or a view of; "" if it is none.
        mask: ``causal``, ``none`` or ``other`` for a tensor that masks attention scores, else "".
    """

    value: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    stored: int
    offset: int = 0
    parameter: str = ""
    mask: str = ""

    @property
    def itemsize(self) -> int:
        return int(getattr(torch, self.dtype).itemsize)

    @property
    def stored_bytes(self) -> int:
        return self.stored * self.itemsize

    @property
    def numel(self) -> int:
        return int(torch.Size(self.shape).numel())

    @property
    def is_float(self) -> bool:
        return bool(getattr(torch, self.dtype).is_floating_point)


@dataclasses.dataclass(frozen=True)
class Frame:
    """One call of a module: its path from the root, its class, and the number of this call in the pass."""

    path: str
    kind: str
    call: int


@dataclasses.dataclass
class Call:
    """One operator call.

    Attributes:
        index: Its place in the stream.
        name: Of the operator without the overload, such as ``aten::mm``.
        arguments: By the schema's names; a tensor stands as `TensorInfo`, lists of them as tuples.
        outputs: What it returns, in order; only tensors.
        frames: The modules around it, outermost first.
        phase: ``forward`` or ``backward``.
        forward: For a call of the backward pass, the index of the forward call that it belongs to.
        is_view: It computes nothing: a view, or fresh memory.
        writes: Values that it changed in place, as they were before.
    """

    index: int
    name: str
    arguments: dict[str, Any]
    outputs: tuple[TensorInfo, ...] = ()
    frames: tuple[Frame, ...] = ()
    phase: str = "forward"
    forward: int | None = None
    is_view: bool = False
    writes: tuple[int, ...] = ()

    @functools.cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The tensors among the arguments, in order."""
        found: list[TensorInfo] = []
        for value in self.arguments.values():
            found += [item for item in (value if isinstance(value, tuple) else (value,)) if _is_tensor(item)]
        return tuple(found)

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition("::")[2]

    @property
    def path(self) -> str:
        """Path of the innermost module; "" is the model itself."""
        return self.frames[-1].path if self.frames else ""


def _is_tensor(value: object) -> bool:
    return isinstance(value, TensorInfo)
