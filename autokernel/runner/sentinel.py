"""Watch a candidate from inside its process: what it opens, starts, looks at and reads on the host.

`Watch` is an audit hook, set up before the candidate is imported.  It records trespasses (files,
network, processes, stack inspection) when the candidate's own code is what caused them.  Its
neighbours are `snapshot`, which sees what was replaced, and `recorder`, which sees PyTorch's operators.

A watcher in the candidate's process can be defeated by a candidate that is written against it;
what must hold even then (values, times) is checked by the judge from outside.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.utils.dlpack

__all__ = ["Watch"]

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
    "object.__getattr__": "stack_inspection",
    "gc.get_objects": "stack_inspection",
    "gc.get_referrers": "stack_inspection",
    "gc.get_referents": "stack_inspection",
    "sys.settrace": "stack_inspection",
    "sys.setprofile": "stack_inspection",
    "ctypes.dlopen": "native_code",
    "ctypes.dlsym": "native_code",
    "ctypes.string_at": "native_code",
    "ctypes.cdata": "native_code",
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
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")  # attributes that lead to a caller's variables
_READERS = (
    *((torch.Tensor, name) for name in ("numpy", "__array__", "tolist", "__dlpack__")),
    *((torch.UntypedStorage, name) for name in ("tolist", "__getitem__", "__iter__")),
    *((owner, "to_dlpack") for owner in (torch, torch.utils.dlpack) if hasattr(owner, "to_dlpack")),
)


class Watch:
    """An audit hook that records what the candidate's code causes.

    An event belongs to the candidate if its file is on the stack, or the runner's call of it, and
    nothing between that and the event is Triton's or this package's compiler, which open files and
    start compilers on its behalf.
    """

    def __init__(self) -> None:
        self.findings: dict[tuple[str, str], None] = {}
        self.files: set[str] = set()
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
        for owner, name in _READERS:
            if hasattr(owner, name):
                setattr(owner, name, self._counting(getattr(owner, name)))

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def trap(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._armed and self.is_responsible(sys._getframe(1)):
                single = method.__name__ == "__getitem__"
                self.host_elements += 1 if single else tensor.numel() if hasattr(tensor, "numel") else tensor.nbytes()
            return method(tensor, *args, **kwargs)

        return trap

    def suspect(self, filename: str) -> None:
        """Hold the code of this file responsible from now on."""
        self.files.add(filename)
        self._armed = True

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._armed or event not in _EVENTS:
            return
        if event == "object.__getattr__" and args[1] not in _FRAMES:
            return
        self._armed = False  # what the hook itself does is not the candidate's doing
        try:
            if event == "open" and not self._is_write(args):
                return
            if event == "ctypes.dlsym" and self._is_compiled_here(args[0]):
                return
            frame = sys._getframe(1)
            if event == "object.__getattr__" and frame.f_code.co_filename not in self.files:
                return  # traceback reads them to print an exception
            if self.is_responsible(frame, direct=_EVENTS[event] == "stack_inspection"):
                shown = ", ".join(repr(arg)[:120] for arg in args[:2])
                self.findings[_EVENTS[event], f"the candidate caused {event}({shown})"] = None
        finally:
            self._armed = True

    @staticmethod
    def _is_compiled_here(library: Any) -> bool:
        """Whether a library is one that this package's compiler made, which checks what is in it."""
        folder = os.environ.get("AUTOKERNEL_CACHE_DIR", "")
        return bool(folder) and str(getattr(library, "_name", "")).startswith(os.path.join(folder, "cpp-"))

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
            if filename in self.files:
                return True
            if filename == _CALLER:
                return self._calling and not direct
            if filename.startswith(self._mediators):
                return False
            if direct and not filename.endswith((os.sep + "inspect.py", os.sep + "traceback.py")):
                return False
            frame = frame.f_back
        return False
