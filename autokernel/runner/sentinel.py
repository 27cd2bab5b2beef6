"""Watch a candidate from inside its process: what it replaces, opens, starts and looks at.

Three watchers, all set up before the candidate is imported:

* `Snapshot` remembers the functions of torch, triton, time and this package; whatever is replaced
  afterwards is a finding, whoever would have been fooled by it.
* `Watch` is an audit hook.  It records trespasses (files, network, processes, stack inspection)
  when the candidate's own code is what caused them.
* `Recorder` sees every PyTorch operator inside a call.  It fills fresh memory with garbage, and
  counts how many elements PyTorch itself computed.

A watcher in the candidate's process can be defeated by a candidate that is written against it;
what must hold even then (values, times) is checked by the judge from outside.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Recorder", "Snapshot", "Watch"]

_WATCHED_ROOTS = ("torch", "triton", "time", "builtins", "autokernel", "gc", "sys", "ctypes", "inspect")
_VOLATILE = ("torch._dynamo", "torch._inductor", "torch.fx", "torch._functorch", "triton.knobs")
_SETTINGS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("torch's number of threads", torch.get_num_threads),
    ("torch's default dtype", torch.get_default_dtype),
    ("torch's float32 matmul precision", torch.get_float32_matmul_precision),
    ("torch.backends.cuda.matmul.allow_tf32", lambda: torch.backends.cuda.matmul.allow_tf32),
    ("torch's deterministic mode", torch.are_deterministic_algorithms_enabled),
    ("gradient mode", torch.is_grad_enabled),
    ("the garbage collector's state", gc.isenabled),
)


def _callables(namespace: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found = {}
    for name, value in namespace.items():
        if type(value) in (staticmethod, classmethod):  # not isinstance: some modules hold proxies that warn
            value = value.__func__
        if callable(value):
            code = value.__code__ if type(value) is types.FunctionType else None
            found[name] = (id(value), id(code))
    return found


def _classes(module: types.ModuleType) -> list[tuple[str, type]]:
    """The classes that a module of this package defines: a method can be replaced as a function can."""
    if not module.__name__.startswith("autokernel."):
        return []
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    return [(f"{module.__name__}.{value.__qualname__}", value) for value in own]


def _shadowed(owner: Any) -> set[str]:
    """Names that, set on ``owner``, would hide an inherited method, or a builtin function from this package."""
    if isinstance(owner, type):
        return {name for base in owner.__mro__[1:] for name in vars(base)}
    return set(vars(builtins)) if owner.__name__.startswith("autokernel.") else set()


class Snapshot:
    """The functions and settings of the libraries that a candidate could tamper with."""

    def __init__(self) -> None:
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        self._spaces: list[tuple[str, Any, dict[str, tuple[int, int]]]] = []
        self._kept: list[Any] = []  # keeps every id unique
        for module_name, module in list(sys.modules.items()):
            if module_name.partition(".")[0] not in _WATCHED_ROOTS or not isinstance(module, types.ModuleType):
                continue
            if module_name.startswith(_VOLATILE) or (interpreted and module_name.startswith("triton.language")):
                continue  # these replace functions of their own in the normal course of things
            self._add(module_name, module)
            for name, value in _classes(module):
                self._add(name, value)
        for owner in (torch.Tensor, torch.Generator, torch.cuda.Event, torch.cuda.Stream, torch.cuda.CUDAGraph):
            self._add(f"{owner.__module__}.{owner.__qualname__}", owner)
        self._settings = [read() for _name, read in _SETTINGS]
        self._random_state = torch.get_rng_state()

    def _add(self, name: str, owner: Any) -> None:
        namespace = dict(vars(owner))
        self._kept.append([value for value in namespace.values() if callable(value)])
        self._spaces.append((name, owner, _callables(namespace)))

    def changes(self) -> list[tuple[str, str]]:
        """Return (kind, evidence) for each function replaced and each setting changed since."""
        found = []
        for name, owner, before in self._spaces:
            now = _callables(dict(vars(owner)))
            for attribute, identity in before.items():
                if now.get(attribute) != identity:
                    found.append(("patched_function", f"{name}.{attribute} was replaced or removed by the candidate"))
            new = now.keys() - before.keys()
            for attribute in sorted(new & _shadowed(owner)) if new else ():
                found.append(("patched_function", f"{name}.{attribute} was hidden behind another by the candidate"))
        for (what, read), before_value in zip(_SETTINGS, self._settings, strict=True):
            value = read()
            if value != before_value:
                found.append(("changed_setting", f"{what} went from {before_value} to {value}"))
        if not torch.equal(torch.get_rng_state(), self._random_state):
            found.append(("changed_random_state", "the state of torch's global random generator was changed"))
        return found[:20]


_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_TORCH = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_TORCH_COMPILERS = (_TORCH + "utils/cpp_extension.py", _TORCH + "utils/_cpp_extension_versioner.py")
_CALLER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "child.py")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {
    "socket.__new__": "network",
    "socket.connect": "network",
    "socket.bind": "network",
    "socket.getaddrinfo": "network",
    "subprocess.Popen": "process_started",
    "os.fork": "process_started",
    "os.forkpty": "process_started",
    "os.posix_spawn": "process_started",
    "os.exec": "process_started",
    "os.system": "process_started",
    "os.kill": "process_signalled",
    "os.killpg": "process_signalled",
    "signal.pthread_kill": "process_signalled",
    "sys._getframe": "stack_inspection",
    "sys._current_frames": "stack_inspection",
    "gc.get_objects": "stack_inspection",
    "gc.get_referrers": "stack_inspection",
    "gc.get_referents": "stack_inspection",
    "sys.settrace": "stack_inspection",
    "sys.setprofile": "stack_inspection",
    "ctypes.dlopen": "native_code",
    "ctypes.dlsym": "native_code",
    "ctypes.string_at": "native_code",
    "sys.addaudithook": "audit_hook",
    "os.remove": "file_changed",
    "os.rename": "file_changed",
    "os.mkdir": "file_changed",
    "os.rmdir": "file_changed",
    "os.link": "file_changed",
    "os.symlink": "file_changed",
    "os.truncate": "file_changed",
    "os.chmod": "file_changed",
    "open": "file_written",
}


class Watch:
    """An audit hook that records what the candidate's code causes.

    An event belongs to the candidate if its file is on the stack, or the runner's call of it, and
    nothing between that and the event is Triton's or this package's compiler, which open files and
    start compilers on its behalf.
    """

    def __init__(self) -> None:
        self.findings: dict[tuple[str, str], None] = {}
        self._files: set[str] = set()
        self._mediators = tuple(
            os.path.dirname(os.path.realpath(module.__file__)) + os.sep
            for name, module in list(sys.modules.items())
            if name == "triton" and module.__file__
        ) + (_PACKAGE + "backends" + os.sep, *_TORCH_COMPILERS)
        self._armed = False
        self._calling = False
        self.host_elements = 0
        sys.addaudithook(self._hook)

    def trap_host_access(self) -> None:
        """Count the elements that the candidate reads as NumPy arrays or Python numbers from now on."""
        for name in ("numpy", "__array__", "tolist", "__dlpack__"):
            setattr(torch.Tensor, name, self._counting(getattr(torch.Tensor, name)))

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def trap(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._armed and self.is_responsible(sys._getframe(1)):
                self.host_elements += tensor.numel()
            return method(tensor, *args, **kwargs)

        return trap

    def suspect(self, filename: str) -> None:
        """Hold the code of this file responsible from now on."""
        self._files.add(filename)
        self._armed = True

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._armed or event not in _EVENTS:
            return
        self._armed = False  # what the hook itself does is not the candidate's doing
        try:
            if event == "open" and not self._is_write(args):
                return
            if self.is_responsible(sys._getframe(1), direct=_EVENTS[event] == "stack_inspection"):
                shown = ", ".join(repr(arg)[:120] for arg in args[:2])
                self.findings[_EVENTS[event], f"the candidate caused {event}({shown})"] = None
        finally:
            self._armed = True

    @staticmethod
    def _is_write(args: tuple[Any, ...]) -> bool:
        path, mode, flags = (*args, None, None, None)[:3]
        if isinstance(path, int) or str(path).startswith(("/dev/null", "/dev/nvidia", "/proc/self/")):
            return False
        if isinstance(mode, str):
            return any(letter in mode for letter in "wax+")
        return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)

    @contextlib.contextmanager
    def blaming(self) -> Iterator[None]:
        """While the block runs, what no compiler did is the candidate's, even without its code on the stack.

        ``kernel_fn = torch.softmax`` leaves no frame of its own.
        """
        self._calling = True
        try:
            yield
        finally:
            self._calling = False

    def is_responsible(self, frame: types.FrameType | None, *, direct: bool = False) -> bool:
        """Whether the code that runs in ``frame`` was set in motion by the candidate.

        Args:
            frame: The innermost frame.
            direct: Blame the candidate only if nothing but `inspect` and `traceback` lies between.
        """
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename in self._files:
                return True
            if filename == _CALLER:
                return self._calling and not direct
            if filename.startswith(self._mediators):
                return False
            if direct and not filename.endswith((os.sep + "inspect.py", os.sep + "traceback.py")):
                return False
            frame = frame.f_back
        return False


_ALLOCATIONS = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::empty_permuted",
}
_MOVES = {
    "aten::clone", "aten::_to_copy", "aten::copy_", "aten::contiguous", "aten::fill_", "aten::zero_", "aten::zeros",
    "aten::zeros_like", "aten::new_zeros", "aten::ones", "aten::ones_like", "aten::new_ones", "aten::full",
    "aten::full_like", "aten::new_full", "aten::arange", "aten::scalar_tensor", "aten::lift_fresh", "aten::detach",
    "aten::_local_scalar_dense", "aten::item", "aten::record_stream", "aten::_pin_memory", "aten::is_pinned",
    "aten::set_", "aten::resize_", "aten::_reshape_alias", "aten::alias", "aten::lift", "aten::lift_fresh_copy",
    "aten::_unsafe_view", "aten::is_same_size", "aten::constant_pad_nd", "aten::cat", "aten::stack",
}  # fmt: skip
PAD_BYTES = 4096


class Recorder(TorchDispatchMode):
    """Sees each PyTorch operator of one call, poisons fresh memory, guards it on both sides.

    Attributes:
        computed: For each compute operator, how many elements went in and out of it.
        host_elements: Elements that were copied from the device to the host.
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
        result = func(*args, **kwargs)
        if name in _ALLOCATIONS:
            if self._poison is not None and isinstance(result, torch.Tensor):
                return self._guard(result)
        elif name in ("aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense"):
            self._note_transfer(args, result)
        elif name not in _MOVES and not func.is_view and self._watch.is_responsible(sys._getframe(1)):
            touched = sum(value.numel() for value in (*args, result) if isinstance(value, torch.Tensor))
            self.computed[name] = self.computed.get(name, 0) + touched
        return result

    def _note_transfer(self, args: tuple[Any, ...], result: Any) -> None:
        source = args[1] if len(args) > 1 and isinstance(args[1], torch.Tensor) else args[0]
        on_host = not isinstance(result, torch.Tensor) or result.device.type == "cpu"
        if isinstance(source, torch.Tensor) and source.device.type != "cpu" and on_host:
            self.host_elements += source.numel()

    def _guard(self, fresh: torch.Tensor) -> torch.Tensor:
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
        return typed.as_strided(fresh.shape, fresh.stride(), typed.storage_offset())

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
