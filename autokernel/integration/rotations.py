"""Functions that turn queries and keys by their position, recognised by what they compute.

Models have them as functions of their own files, ``apply_rotary_pos_emb(q, k, cos, sin)`` or
``rotate(x, cos, sin)``, and a name proves nothing.  A function that is called with such tensors is tried in
float64 on small random ones; since the operation is linear in x and in the tables, it is the operation if
it gives what the reference gives there, heads before or after positions, with neighbours or halves.

Tables often hold each number twice, ``[S, D]`` for ``[S, D/2]``.  Whether they do is a matter of their values, so the
two parts are compared at each call, once for all layers that are handed the same tables.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autokernel import ops
from autokernel.integration.requests import Request

__all__ = ["Rotation", "recognise_rotation"]

_AGREEMENT = 1e-5  # relative; functions that compute in float32 whatever they are given stay far below it
_BATCH, _HEADS, _POSITIONS = 2, (3, 2), 5  # of the tensors that it is tried on
Tables = tuple[Tensor, Tensor]


class _Latest(threading.local):
    """The tables that were read last: a model hands the same ones to each of its layers."""

    cos: Any = staticmethod(lambda: None)
    sin: Any = staticmethod(lambda: None)
    facts: Any = None
    tables: Any = None


_latest = _Latest()


@dataclasses.dataclass(frozen=True)
class Rotation:
    """How a recognised function is read as calls of ``rotary_embedding``.

    Attributes:
        tensors: It takes and returns one tensor, or two: queries and keys.
        positions: The dimension of a tensor that counts positions: 2 in ``[B, H, S, D]``, 1 in ``[B, S, H, D]``.
        interleaved: It turns neighbours, not halves.
        table_ndim: Dimensions of a table.
        doubled: A table holds each number twice.
        batched: The tables may differ from sequence to sequence.
        wide: The result has the wider dtype of tensor and table, not the tensor's.
        others: The further arguments with which it was recognised.
    """

    tensors: int
    positions: int
    interleaved: bool
    table_ndim: int
    doubled: bool
    batched: bool = False
    wide: bool = True
    others: tuple[Any, ...] = ()

    def read(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Request] | str:
        """The requests of a call, one for each tensor, or why no kernel takes it."""
        values = _values(function, args, kwargs)
        given = values[: self.tensors + 2]
        if len(given) != self.tensors + 2 or not all(isinstance(one, Tensor) for one in given):
            return "arguments that no kernel takes"
        others = values[self.tensors + 2 :]
        if any(isinstance(one, Tensor) for one in others) or others != self.others:
            return "other arguments than it was recognised with"
        *turned, cos, sin = given
        requests: list[Request] = []
        for x in turned:
            request = self._request(x, cos, sin)
            if isinstance(request, str):
                return request
            requests.append(request)
        return requests

    def turned(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Tensor]:
        """The tensors of a call that are turned."""
        return _values(function, args, kwargs)[: self.tensors]

    def _request(self, x: Tensor, cos: Tensor, sin: Tensor) -> Request | str:
        if x.dim() != 4 or x.numel() == 0 or not x.is_floating_point() or x.shape[-1] % 2:
            return "a tensor that is not [B, H, S, D] or [B, S, H, D]"
        if cos.dtype != sin.dtype or cos.shape != sin.shape or cos.device != x.device or sin.device != x.device:
            return "tables of several kinds, or on another device"
        by_heads = x if self.positions == 2 else x.transpose(1, 2)
        dtype = torch.promote_types(x.dtype, cos.dtype)
        tables = self._tables(cos, sin, by_heads.shape, dtype)
        if isinstance(tables, str):
            return tables
        B, _H, S, _D = by_heads.shape
        if tables[0].shape[0] != S:  # a table for each sequence: all positions in one row
            if by_heads.stride(0) != S * by_heads.stride(2):
                return "tables for each sequence, and positions that do not follow one another in memory"
            by_heads = by_heads.transpose(0, 1).flatten(1, 2).unsqueeze(0)
        B, H, S, D = by_heads.shape
        sizes = (("B", B), ("D", D), ("H", H), ("S", S))
        options = (("interleaved", self.interleaved),)
        result = dtype if self.wide else x.dtype
        inputs = (by_heads if x.dtype == dtype else by_heads.to(dtype), *tables)
        return Request("rotary_embedding", inputs, options, sizes, (B, H, S, D), result)

    def to_request(self, request: Request, value: Tensor) -> Tensor:
        """A value of the model as the kernel has it."""
        by_heads = value if self.positions == 2 else value.transpose(1, 2)
        if by_heads.shape == request.shape:
            return by_heads
        return by_heads.transpose(0, 1).flatten(1, 2).unsqueeze(0)

    def to_model(self, request: Request, value: Tensor, x: Tensor) -> Tensor:
        """A kernel's result as the model has it, in the place of ``x``."""
        by_heads = x.shape if self.positions == 2 else (x.shape[0], x.shape[2], x.shape[1], x.shape[3])
        if value.shape != by_heads:
            value = value.reshape(by_heads[1], by_heads[0], *by_heads[2:]).transpose(0, 1)
        return value if self.positions == 2 else value.transpose(1, 2)

    # Tables

    def _tables(self, cos: Tensor, sin: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tables | str:
        """cos and sin as ``[S, D/2]``, or ``[B * S, D/2]`` where each sequence has its own."""
        capturing = cos.is_cuda and torch.cuda.is_current_stream_capturing()
        if capturing and self.doubled:
            return "tables whose parts cannot be compared while a CUDA graph is captured"
        if capturing or cos.is_inference() or sin.is_inference():  # they do not tell whether they were changed
            return self._read_tables(cos, sin, shape, dtype)
        facts = (self, cos._version, sin._version, shape[0], shape[2], dtype)
        if not (_latest.cos() is cos and _latest.sin() is sin and _latest.facts == facts):
            tables = self._read_tables(cos, sin, shape, dtype)
            _latest.cos, _latest.sin = weakref.ref(cos), weakref.ref(sin)
            _latest.facts, _latest.tables = facts, tables
        found: Tables | str = _latest.tables
        return found

    def _read_tables(self, cos: Tensor, sin: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tables | str:
        rows = [self._rows(table, shape) for table in (cos, sin)]
        pairs = [_parts(one, self.interleaved) if self.doubled else (one, one) for one in rows if one is not None]
        if len(pairs) != 2 or pairs[0][0].shape[-1] != shape[3] // 2:
            return "tables of other sizes than it was recognised with"
        if self.doubled and not bool(torch.stack([(one == other).all() for one, other in pairs]).all()):
            return "tables whose two parts differ"
        first, second = (one.to(dtype).contiguous() for one, _other in pairs)
        return first, second

    def _rows(self, table: Tensor, shape: Sequence[int]) -> Tensor | None:
        """A table as ``[S, W]`` or ``[B * S, W]``; None if it has other sizes."""
        batch, _heads, positions, _width = shape
        if table.dim() != self.table_ndim:
            return None
        if table.dim() == 4:
            if table.shape[3 - self.positions] != 1:
                return None
            table = table.select(3 - self.positions, 0)
        if table.dim() == 3:
            shared = table.shape[0] == 1 or table.stride(0) == 0
            if not shared and not (self.batched and table.shape[0] == batch):
                return None
            table = table[0] if shared else table.flatten(0, 1)
        rows: tuple[int, ...] = (positions, batch * positions) if self.batched else (positions,)
        return table if table.shape[0] in rows else None


def recognise_rotation(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Rotation | None:
    """Find out whether a function is a rotary embedding, from one call of it.

    Args:
        function: It is called on small tensors of random numbers.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.
    """
    values = _values(function, args, kwargs)
    count = next((i for i, one in enumerate(values) if not isinstance(one, Tensor)), len(values))
    tensors = count - 2
    if tensors not in (1, 2) or any(isinstance(one, Tensor) for one in values[count:]):
        return None
    if not _plausible(values[:tensors], *values[tensors:count]):
        return None
    doubled = values[tensors].shape[-1] == values[0].shape[-1]
    for positions, interleaved in itertools.product((2, 1), (False, True)):
        form = Rotation(
            tensors, positions, interleaved, values[tensors].dim(), doubled, others=tuple(values[tensors + 2 :])
        )
        if _agrees(form, function, values, batch=1):
            batched = form.table_ndim > 2 and _agrees(
                dataclasses.replace(form, batched=True), function, values, batch=_BATCH
            )
            return dataclasses.replace(form, batched=batched, wide=_is_wide(form, function, values))
    return None


def _values(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments in the order of the function's parameters."""
    if not kwargs:
        return tuple(args)
    try:
        bound = _signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return ()
    return (*bound.args, *bound.kwargs.values())


@functools.lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _plausible(turned: Sequence[Tensor], cos: Tensor, sin: Tensor) -> bool:
    width = turned[0].shape[-1] if turned[0].dim() else 0
    floating = all(one.is_floating_point() for one in (*turned, cos, sin))
    alike = all(one.dim() == 4 and one.shape[-1] == width and one.dtype == turned[0].dtype for one in turned)
    tables = cos.shape == sin.shape and cos.dim() in (2, 3, 4) and cos.shape[-1] in (width, width // 2)
    return floating and alike and tables and width > 0 and width % 2 == 0


def _parts(table: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The two appearances of each number in a doubled table."""
    half = table.shape[-1] // 2
    return (table[..., 0::2], table[..., 1::2]) if interleaved else (table[..., :half], table[..., half:])


def _trial(form: Rotation, values: Sequence[Any], batch: int, dtype: torch.dtype) -> list[Tensor]:
    """Tensors and tables of random numbers, with a size of its own for each dimension."""
    generator = torch.Generator().manual_seed(0)
    width, device = values[0].shape[-1], values[0].device

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(device)

    turned = [normal(_BATCH, heads, _POSITIONS, width).to(dtype) for heads in _HEADS[: form.tensors]]
    tables = [normal(batch, _POSITIONS, width // 2) for _ in range(2)]
    if form.doubled:
        tables = [
            one.repeat_interleave(2, dim=-1) if form.interleaved else torch.cat((one, one), dim=-1) for one in tables
        ]
    if form.table_ndim == 2:
        tables = [one[0] for one in tables]
    elif form.table_ndim == 4:
        tables = [one.unsqueeze(3 - form.positions) for one in tables]
    return [*(one if form.positions == 2 else one.transpose(1, 2).contiguous() for one in turned), *tables]


def _called(form: Rotation, function: Callable[..., Any], tried: Sequence[Tensor]) -> list[Tensor] | None:
    """What the function returns, as a list; None if it fails or returns something else."""
    try:
        with torch.no_grad():
            output = function(*[one.clone() for one in tried], *form.others)
    except Exception:  # a function that does not take such tensors is none that is looked for
        return None
    outputs = [output] if isinstance(output, Tensor) else list(output) if isinstance(output, (tuple, list)) else []
    fits = len(outputs) == form.tensors and isinstance(output, Tensor) == (form.tensors == 1)
    return outputs if fits and all(isinstance(one, Tensor) for one in outputs) else None


def _agrees(form: Rotation, function: Callable[..., Any], values: Sequence[Any], batch: int) -> bool:
    tried = _trial(form, values, batch, torch.float64)
    outputs = _called(form, function, tried)
    if outputs is None or any(one.shape != x.shape for one, x in zip(outputs, tried, strict=False)):
        return False
    *turned, cos, sin = tried
    rows = [form._rows(table, (_BATCH, 0, _POSITIONS, 0)) for table in (cos, sin)]
    if any(one is None for one in rows):
        return False
    narrow = [_parts(one, form.interleaved)[0] if form.doubled else one for one in rows if one is not None]
    if batch > 1:  # for the reference, a batch of tables
        narrow = [one.view(batch, 1, _POSITIONS, -1) for one in narrow]
    for x, output in zip(turned, outputs, strict=True):
        by_heads = x if form.positions == 2 else x.transpose(1, 2)
        actual = output if form.positions == 2 else output.transpose(1, 2)
        expected = ops.get("rotary_embedding").reference(by_heads, *narrow, interleaved=form.interleaved)
        if not bool((actual.double() - expected).norm() <= _AGREEMENT * expected.norm()):
            return False
    return True


def _is_wide(form: Rotation, function: Callable[..., Any], values: Sequence[Any]) -> bool:
    """Whether a half-width tensor comes back in the dtype of wider tables."""
    *turned, cos, sin = _trial(form, values, 1, torch.bfloat16)
    outputs = _called(form, function, [*turned, cos.float(), sin.float()])
    return outputs is None or outputs[0].dtype != torch.bfloat16
