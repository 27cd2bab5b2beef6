"""See every PyTorch operator of one call, poison fresh memory, and guard what the candidate allocates.

Two observers, because each can be avoided: `Recorder` is a dispatch mode, which sees what the thread of
the call does and can put other memory under a tensor; `operators` runs a call under PyTorch's profiler,
which sees all threads, and a call that runs with every dispatch mode switched off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autokernel.runner.sentinel import Watch

__all__ = ["PAD_BYTES", "Recorder", "operators"]

PAD_BYTES = 4096
_ALLOCATIONS = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::empty_permuted",
}
# They make a tensor that a kernel may work on in place, so it is guarded too; its content stays.
_MAKERS = {
    "aten::clone", "aten::_to_copy", "aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::ones",
    "aten::ones_like", "aten::new_ones", "aten::full", "aten::full_like", "aten::new_full", "aten::arange",
    "aten::cat", "aten::stack", "aten::constant_pad_nd",
}  # fmt: skip
_MOVES = _ALLOCATIONS | _MAKERS | {
    "aten::copy_", "aten::contiguous", "aten::fill_", "aten::zero_", "aten::scalar_tensor", "aten::lift_fresh",
    "aten::detach", "aten::_local_scalar_dense", "aten::item", "aten::record_stream", "aten::_pin_memory",
    "aten::is_pinned", "aten::set_", "aten::resize_", "aten::_reshape_alias", "aten::alias", "aten::lift",
    "aten::lift_fresh_copy", "aten::_unsafe_view", "aten::is_same_size", "aten::equal", "aten::is_nonzero",
    "aten::result_type", "aten::tensor",
}  # fmt: skip
_SHARED = {op.partition("::")[0] for op in torch._C._dispatch_get_all_op_names()}


def _is_move(name: str, schema: Any) -> bool:
    """Whether an operator only allocates, copies, or looks at its argument in another way."""
    if name in _MOVES:
        return True
    return any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)


class Recorder(TorchDispatchMode):
    """Sees each PyTorch operator of one call, poisons fresh memory, guards it on both sides.

    Attributes:
        computed: For each compute operator, how many elements went in and out of it.
        host_elements: Elements that were copied from the device to the host, or read one by one.
    """

    def __init__(self, watch: Watch, *, poison: int | None) -> None:
        super().__init__()
        self.computed: dict[str, int] = {}
        self.host_elements = 0
        self._watch = watch
        self._poison = poison
        self._guarded: list[tuple[torch.Tensor, int, int]] = []

    def __torch_dispatch__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if func.namespace not in _SHARED and func.namespace not in ("higher_order", "prim"):
            return self._look_inside(func, args, kwargs)
        result = func(*args, **kwargs)
        if name in ("aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense"):
            self._note_transfer(name, args, result)
        elif not _is_move(name, func._schema) and self._watch.is_responsible(sys._getframe(1)):
            touched = sum(value.numel() for value in (*args, result) if isinstance(value, torch.Tensor))
            self.computed[name] = self.computed.get(name, 0) + touched
        if self._poison is not None and isinstance(result, torch.Tensor):
            if name in _ALLOCATIONS:
                return self._guard(result, keep=False)
            if name in _MAKERS:
                return self._guard(result, keep=True)
        return result

    def _look_inside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that the candidate registered; what it calls comes here in its turn."""
        devices = {value.device.type for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
        key = torch._C.DispatchKey.CPU if devices <= {"cpu"} else torch._C.DispatchKey.CUDA
        with self:
            return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)

    def _note_transfer(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        source = args[1] if len(args) > 1 and isinstance(args[1], torch.Tensor) else args[0]
        on_host = not isinstance(result, torch.Tensor) or result.device.type == "cpu"
        moved = isinstance(source, torch.Tensor) and source.device.type != "cpu" and on_host
        if moved or (name == "aten::_local_scalar_dense" and self._watch.is_responsible(sys._getframe(2))):
            self.host_elements += source.numel()

    def _guard(self, fresh: torch.Tensor, *, keep: bool) -> torch.Tensor:
        """Return a tensor like ``fresh`` in memory that is poisoned and has guard bands around it."""
        if fresh.layout is not torch.strided or fresh.is_meta or fresh.numel() == 0 or fresh.is_pinned():
            return fresh
        itemsize = fresh.element_size()
        span = 1 + sum((size - 1) * stride for size, stride in zip(fresh.shape, fresh.stride(), strict=False))
        count = -(-span * itemsize // PAD_BYTES) * PAD_BYTES
        storage = torch.empty(count + 2 * PAD_BYTES, dtype=torch.uint8, device=fresh.device)
        pattern = 0xFF if self._poison == 0 else 0x7B  # NaN in every float dtype; or large finite values
        storage.fill_(pattern)
        self._guarded.append((storage, PAD_BYTES + span * itemsize, pattern))
        typed = storage[PAD_BYTES : PAD_BYTES + count].view(fresh.dtype)
        view = typed.as_strided(fresh.shape, fresh.stride(), typed.storage_offset())
        return view.copy_(fresh) if keep else view

    def trespasses(self) -> list[tuple[str, str]]:
        """Return (kind, evidence) for each write outside a tensor that the candidate allocated."""
        found = []
        for storage, end, pattern in self._guarded:
            before = int((storage[:PAD_BYTES] != pattern).sum())
            after = int((storage[end:] != pattern).sum())
            if before or after:
                found.append(
                    (
                        "out_of_bounds_write",
                        f"{before} bytes before and {after} bytes after a tensor of "
                        f"{end - PAD_BYTES} bytes that the candidate allocated were overwritten",
                    )
                )
        return found


def operators(call: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """Make a call under PyTorch's profiler; return its result, and the elements that went into compute operators.

    An operator that is made of others is not counted, only those others are.
    """
    from torch._C import _autograd as profiler
    from torch._C import _profiler as native

    try:
        experimental = native._ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # before torch 2.7: the calling thread only
        experimental = native._ExperimentalConfig()
    config = native.ProfilerConfig(native.ProfilerState.KINETO, True, False, False, False, False, experimental)
    activities = {native.ProfilerActivity.CPU}
    profiler._prepare_profiler(config, activities)
    profiler._enable_profiler(config, activities)
    try:
        result = call()
    finally:
        events = profiler._disable_profiler().events()
    return result, _leaves(events)


def _leaves(events: Iterable[Any]) -> dict[str, int]:
    computed: dict[str, int] = {}
    open_events: dict[int, list[tuple[int, str, int]]] = {}  # for each thread: end, name, elements

    def close(stack: list[tuple[int, str, int]]) -> None:
        _end, name, elements = stack.pop()
        if name:
            computed[name] = computed.get(name, 0) + elements

    for event in sorted(events, key=lambda event: (event.start_ns(), -event.duration_ns())):
        name = event.name()
        if not name.startswith("aten::") or _moves_only(name):
            continue
        stack = open_events.setdefault(event.start_thread_id(), [])
        while stack and stack[-1][0] <= event.start_ns():
            close(stack)
        if stack:
            stack[-1] = (stack[-1][0], "", 0)  # it is made of others
        elements = sum(torch.Size(shape).numel() for shape in event.shapes() if shape)
        stack.append((event.start_ns() + event.duration_ns(), name, elements))
    for stack in open_events.values():
        while stack:
            close(stack)
    return computed


def _moves_only(name: str) -> bool:
    schemas = torch._C._jit_get_schemas_for_operator(name)
    return name in _MOVES or any(_is_move(name, schema) for schema in schemas)
