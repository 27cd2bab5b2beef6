"""The operator stream: every operator that one pass of a model calls, with its tensors and its module.

The model runs once for real under a dispatch mode, below autograd, where composite operators have been
taken apart: what is recorded is what reaches a kernel.  Each tensor carries the number of the call that
made it, so that the stream is a graph of data flow.  Modules are known from hooks on the way in and out;
a call of the backward pass has the module of the forward call whose gradient it computes, found by
autograd's sequence number.

How long the calls take is `timeline`'s matter; what they amount to, `patterns`'.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from autokernel.profiling.calls import Call, Frame, TensorInfo
from autokernel.profiling.masks import mask_kind

__all__ = ["CALL_TAG", "MODULE_TAG", "OWN_TAG", "Recorder"]

CALL_TAG, MODULE_TAG, OWN_TAG = "autokernel#", "autokernel@", "autokernel:"
_NO_SEQUENCE = 2**63  # AccumulateGrad and others that belong to no forward call have 2**64 - 1


# Fresh memory, aliases and questions about a tensor: no arithmetic and no traffic.
_NO_WORK = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "as_strided", "set_"),
        *("alias", "detach", "lift_fresh", "resolve_conj", "resolve_neg"),
        *("view", "_unsafe_view", "reshape", "_reshape_alias"),
    )
)


@functools.cache
def _returns_view(func: Any) -> bool:
    schema = func._schema
    if schema.name.rpartition("::")[2] in _NO_WORK:
        return True
    aliases = [one.alias_info for one in schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


@functools.cache
def _parameters(func: Any) -> tuple[tuple[str, bool], ...]:
    """Names of the schema's arguments, and whether each is written to."""
    return tuple((one.name, one.alias_info is not None and one.alias_info.is_write) for one in func._schema.arguments)


class Recorder(TorchDispatchMode):
    """Records the calls of one pass: ``with recorder.recording(model): model(x)``; then `calls` has them.

    Each call runs under a profiler scope ``autokernel#<index>``, so that a profiler that is on meanwhile
    knows which kernels belong to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._values: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._masks: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._frames: list[Frame] = []
        self._scopes: list[Any] = []
        self._module_calls = 0
        self._next_value = 0
        self._by_sequence: dict[int, int] = {}

    @contextlib.contextmanager
    def recording(self, model: nn.Module | None) -> Iterator[Recorder]:
        """Record what runs in the block; module paths are those of ``model``."""
        with contextlib.ExitStack() as stack:
            if model is not None:
                self._name_parameters(model)
                stack.enter_context(self._hooks(model))
            stack.enter_context(self)
            yield self

    def _name_parameters(self, model: nn.Module) -> None:
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._names.setdefault(tensor.untyped_storage()._cdata, name)

    @contextlib.contextmanager
    def _hooks(self, model: nn.Module) -> Iterator[None]:
        handles = []
        try:
            for path, module in model.named_modules():
                if isinstance(module, torch.jit.ScriptModule):
                    continue  # it takes no hooks; its operators count as those of the module around it
                enter = functools.partial(self._enter, path)
                handles.append(module.register_forward_pre_hook(enter, prepend=True))
                handles.append(module.register_forward_hook(self._leave, always_call=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, path: str, module: nn.Module, inputs: Any) -> None:
        self.enter_module(path, type(module).__name__)

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.leave_module()

    def enter_module(self, path: str, kind: str) -> None:
        """Say that a module's forward begins."""
        self._frames.append(Frame(path, kind, self._module_calls))
        self._module_calls += 1
        scope = torch.profiler.record_function(f"{MODULE_TAG}{path}")
        scope.__enter__()
        self._scopes.append(scope)

    def leave_module(self) -> None:
        """Say that the innermost module's forward is over."""
        if self._frames:
            self._frames.pop()
            self._scopes.pop().__exit__(None, None, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace in ("profiler", "prim"):
            return func(*args, **(kwargs or {}))
        call, written = self._begin(func, args, kwargs or {})
        with torch.profiler.record_function(f"{CALL_TAG}{call.index}"):
            result = func(*args, **(kwargs or {}))
        for tensor in written:
            self._renew(tensor)
        call.outputs = tuple(self._info(one) for one in _tensors(result))
        return result

    def _begin(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, list[Tensor]]:
        arguments: dict[str, Any] = {}
        written: list[Tensor] = []
        for position, (name, writes) in enumerate(_parameters(func)):
            value = args[position] if position < len(args) else kwargs.get(name)
            arguments[name] = self._describe(value)
            written += _tensors(value) if writes else []
        self._look_at_masks(func._schema.name, args, kwargs, arguments)
        call = Call(
            index=len(self.calls),
            name=func._schema.name,
            arguments=arguments,
            frames=tuple(self._frames),
            is_view=_returns_view(func),
            writes=tuple(self._info(tensor).value for tensor in written),
        )
        self._link(call)
        self.calls.append(call)
        return call, written

    def _link(self, call: Call) -> None:
        """Set the phase, and find the forward call that a backward call belongs to."""
        node = torch._C._current_autograd_node()
        if node is None:
            # The node of a forward call is made just before the call, with the last sequence number.
            self._by_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, call.index)
            return
        call.phase = "backward"
        sequence = node._sequence_nr()
        call.forward = self._by_sequence.get(sequence) if sequence < _NO_SEQUENCE else None
        if call.forward is not None and not call.frames:
            call.frames = self.calls[call.forward].frames

    def _look_at_masks(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], into: dict[str, Any]) -> None:
        for argument, tensor in _masks_of(name, args, kwargs):
            info = into.get(argument)
            if not isinstance(info, TensorInfo):
                continue
            if info.value not in self._masks:
                with torch.profiler.record_function(f"{OWN_TAG}mask"):  # what runs here is no part of the model
                    self._masks[info.value] = mask_kind(tensor, inverted="masked_fill" in name)
            into[argument] = dataclasses.replace(info, mask=self._masks[info.value])

    def _describe(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._info(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._describe(item) for item in value)
        return value

    def _renew(self, tensor: Tensor) -> None:
        self._values[tensor] = self._next_value
        self._next_value += 1

    def _info(self, tensor: Tensor) -> TensorInfo:
        if tensor not in self._values:
            self._renew(tensor)
        known_layout = tensor.layout == torch.strided
        stored, parameter = tensor.numel(), ""
        if known_layout:
            stored = min(stored, tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1))
            parameter = self._names.get(tensor.untyped_storage()._cdata, "")
        return TensorInfo(
            value=self._values[tensor],
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()) if known_layout else (),
            dtype=str(tensor.dtype).removeprefix("torch."),
            device=str(tensor.device),
            stored=stored,
            offset=int(tensor.storage_offset()) if known_layout else 0,
            parameter=parameter,
        )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


_SUMS = ("aten::add", "aten::add_")
_MASK_ARGUMENTS: dict[str, tuple[tuple[int, str], ...]] = {
    "aten::add": ((0, "self"), (1, "other")),
    "aten::add_": ((1, "other"),),
    "aten::masked_fill": ((1, "mask"),),
    "aten::masked_fill_": ((1, "mask"),),
    "aten::where": ((0, "condition"),),
    "aten::_scaled_dot_product_flash_attention_for_cpu": ((-1, "attn_mask"),),
    "aten::_scaled_dot_product_efficient_attention": ((3, "attn_bias"),),
    "aten::_scaled_dot_product_cudnn_attention": ((3, "attn_bias"),),
    "aten::_scaled_dot_product_fused_attention_overrideable": ((3, "attn_bias"),),
}


def _masks_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The arguments that could be an attention mask: at least a matrix, and no larger than what they mask."""
    for position, argument in _MASK_ARGUMENTS.get(name, ()):
        tensor = args[position] if 0 <= position < len(args) else kwargs.get(argument)
        if not isinstance(tensor, Tensor) or tensor.ndim < 2 or tensor.shape[-1] < 2:
            continue
        if name not in _SUMS or _could_mask(tensor, args[1 - position]):
            yield argument, tensor


def _could_mask(mask: Tensor, scores: Any) -> bool:
    """True unless the sum is clearly none of scores and mask: a bias, or a residual connection."""
    if not isinstance(scores, Tensor) or scores.ndim < 3 or not mask.is_floating_point():
        return False
    residual = mask.ndim == scores.ndim == 3 and mask.shape == scores.shape
    return mask.numel() <= scores.numel() and not residual
