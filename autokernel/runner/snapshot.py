"""What a candidate could tamper with in its process, remembered before it is imported.

Functions, methods and modules of torch, triton, NumPy, this package and what they stand on; settings
that slow PyTorch's baseline down or change results; signal handlers; the global random state.
Whatever differs afterwards is a finding, whoever would have been fooled by it.

Comparing is cheap, because most owners are found unchanged by the identities of all that they hold.
"""

from __future__ import annotations

import builtins
import gc
import operator
import os
import signal
import sys
import types
from collections.abc import Callable, Collection
from typing import Any

import torch

from autokernel.ops import modelnew, problem  # noqa: F401 - a problem's baseline goes through them, after the candidate

__all__ = ["Snapshot"]

_WATCHED_ROOTS = frozenset(
    ("autokernel", "torch", "triton", "numpy")
    + (
        "builtins",
        "sys",
        "gc",
        "time",
        "ctypes",
        "inspect",
        "threading",
        "_thread",
        "os",
        "io",
        "functools",
        "operator",
    )
    + ("json", "socket", "struct", "mmap", "contextlib", "math", "random", "statistics", "traceback")
)
# These replace functions of their own in the normal course of things.
_VOLATILE = ("torch._dynamo", "torch._inductor", "torch.fx", "torch._functorch", "triton.knobs")
_KNOWN = frozenset(torch._C._dispatch_get_all_op_names())  # versions of PyTorch differ in what they have
# What PyTorch's baselines are made of: whoever takes their place in the dispatcher slows the baseline, or changes it.
_OPERATORS = tuple(
    name
    for name in map(
        "aten::{}".format,
        (
            *("_softmax", "_log_softmax", "softmax.int", "log_softmax.int", "mm", "bmm", "addmm", "matmul", "linear"),
            *("sum", "sum.dim_IntList", "mean.dim", "amax", "exp", "rsqrt", "pow.Tensor_Scalar", "silu", "gelu", "neg"),
            *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "copy_", "_to_copy", "clone", "cat", "equal"),
            *("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm", "nll_loss_forward"),
            *("scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "view_as_complex"),
            *("cross_entropy_loss", "empty.memory_format"),
        ),
    )
    if name in _KNOWN
)
_is = operator.is_
_TORCH = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_COMPILERS = tuple(_TORCH + name + os.sep for name in ("_dynamo", "_inductor", "_functorch", "fx"))
_SIGNALS = tuple(sorted(signal.valid_signals()))


def _float_mode() -> str:
    """How the processor rounds, and what it does with subnormal numbers, seen by what it computes."""
    one, half_ulp, least = 1.0, 2.0**-54, 2.0**-1074
    odd = [
        name
        for name, is_odd in (
            ("rounds upward", one + half_ulp > 1.0),
            ("rounds downward", -one - half_ulp < -1.0 or one - half_ulp / 2 < 1.0),
            ("takes subnormal numbers for 0", least * one == 0.0),
        )
        if is_odd
    ]
    return ", ".join(odd) or "as usual"


_SETTINGS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("torch's number of threads", torch.get_num_threads),
    ("torch's default dtype", torch.get_default_dtype),
    ("torch's float32 matmul precision", torch.get_float32_matmul_precision),
    ("torch.backends.cuda.matmul.allow_tf32", lambda: torch.backends.cuda.matmul.allow_tf32),
    ("reduced-precision sums of torch's products", torch._C._get_cublas_allow_fp16_reduced_precision_reduction),
    ("torch's deterministic mode", torch.are_deterministic_algorithms_enabled),
    ("torch.backends.mkldnn.enabled", torch._C._get_mkldnn_enabled),
    ("torch.backends.cudnn.enabled", torch._C._get_cudnn_enabled),
    ("torch.backends.cudnn.benchmark", torch._C._get_cudnn_benchmark),
    ("torch's flash attention", torch._C._get_flash_sdp_enabled),
    ("torch's memory-efficient attention", torch._C._get_mem_efficient_sdp_enabled),
    ("gradient mode", torch.is_grad_enabled),
    ("the garbage collector's state", gc.isenabled),
    ("the processors that may be used", lambda: sorted(os.sched_getaffinity(0))),
    ("the process's priority", lambda: os.getpriority(os.PRIO_PROCESS, 0)),
    ("the handlers of signals", lambda: [signal.getsignal(number) for number in _SIGNALS]),
    ("the signals that are blocked", lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    ("the functions that PyTorch's modes hold", torch._C._len_torch_function_stack),
    ("the dispatch modes that are on", torch._C._len_torch_dispatch_stack),
    ("the garbage collector's thresholds and callbacks", lambda: (gc.get_threshold(), list(gc.callbacks))),
    ("the working directory", os.getcwd),
    ("the interval at which Python's threads switch", sys.getswitchinterval),
    ("the processor's arithmetic", _float_mode),
)


def _registrations() -> list[str]:
    return list(map(torch._C._dispatch_dump, _OPERATORS))


def _callables(namespace: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found = {}
    for name, value in namespace.items():
        if type(value) in (staticmethod, classmethod):  # not isinstance: some modules hold proxies that warn
            value = value.__func__
        if callable(value):
            code = value.__code__ if type(value) is types.FunctionType else None
            found[name] = (id(value), id(code))
    return found


class _Owner:
    """A module or class, and what it held at first."""

    def __init__(self, name: str, owner: Any) -> None:
        self.name = name
        self.owner = owner
        self._kept = dict(vars(owner))  # keeps every id unique

    def functions(self) -> list[types.FunctionType]:
        values = [
            getattr(v, "__func__", v) if type(v) in (staticmethod, classmethod) else v for v in self._kept.values()
        ]
        return [value for value in values if type(value) is types.FunctionType]

    def changes(self) -> list[tuple[str, str]]:
        now = vars(self.owner)
        if len(now) == len(self._kept) and all(map(_is, now.values(), self._kept.values())):
            return []
        before, after = _callables(self._kept), _callables(dict(now))
        found = [
            ("patched_function", f"{self.name}.{attribute} was replaced or removed by the candidate")
            for attribute, identity in before.items()
            if after.get(attribute) != identity and not _is_dynamos(now.get(attribute))
        ]
        new = after.keys() - before.keys()
        for attribute in sorted(new & _shadowed(self.owner)) if new else ():
            if not _is_dynamos(now[attribute]):
                found.append(
                    ("patched_function", f"{self.name}.{attribute} was hidden behind another by the candidate")
                )
        if self.name.startswith("autokernel"):
            for attribute, value in self._kept.items():
                if isinstance(value, types.ModuleType) and now.get(attribute) is not value:
                    found.append(("patched_function", f"the module {self.name}.{attribute} was replaced"))
        return found


def _is_dynamos(value: Any) -> bool:
    """Whether a function stands in for another because ``torch.compile`` put it there, which it does to optimizers."""
    value = getattr(value, "__func__", value) if type(value) in (staticmethod, classmethod) else value
    return type(value) is types.FunctionType and value.__code__.co_filename.startswith(_COMPILERS)


def _shadowed(owner: Any) -> set[str]:
    """Names that, set on ``owner``, would hide an inherited method, or a builtin function from this package."""
    if isinstance(owner, type):
        return {name for base in owner.__mro__[1:] for name in vars(base)}
    return set(vars(builtins)) if owner.__name__.startswith("autokernel.") else set()


def _watched_modules() -> dict[str, types.ModuleType]:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    volatile = (*_VOLATILE, "triton.language") if interpreted else _VOLATILE
    return {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in _WATCHED_ROOTS
        and isinstance(module, types.ModuleType)
        and not name.startswith(volatile)
    }


class Snapshot:
    """The functions and settings of the libraries that a candidate could tamper with."""

    def __init__(self) -> None:
        self._modules = _watched_modules()
        owners: dict[int, _Owner] = {}
        for name, module in self._modules.items():
            owners[id(module)] = _Owner(name, module)
            for value in list(vars(module).values()):
                # type(), not isinstance: some modules hold proxies that warn
                if issubclass(type(value), type) and value.__module__ == name:
                    owners[id(value)] = _Owner(f"{name}.{value.__qualname__}", value)
        for owner in (torch.Tensor, torch.Generator, torch.cuda.Event, torch.cuda.Stream, torch.cuda.CUDAGraph):
            owners.setdefault(id(owner), _Owner(f"{owner.__module__}.{owner.__qualname__}", owner))
        self._owners = list(owners.values())
        functions = {id(function): function for owner in self._owners for function in owner.functions()}
        self._functions = list(functions.values())
        self._codes = [function.__code__ for function in self._functions]
        self._settings = [read() for _name, read in _SETTINGS]
        self._random_state = torch.get_rng_state()
        self._registered = _registrations()

    def changes(self, suspects: Collection[str] = ()) -> list[tuple[str, str]]:
        """Return (kind, evidence) for each function replaced and each setting changed since.

        Args:
            suspects: The candidate's files; their code must stand in no module that was imported since.
        """
        found = [
            ("patched_function", f"another module was put in the place of {name}")
            for name, module in self._modules.items()
            if sys.modules.get(name) is not module
        ]
        for owner in self._owners:
            found += owner.changes()
        found += self._planted(suspects)
        for function, code in zip(self._functions, self._codes, strict=True):
            if function.__code__ is not code:
                where = f"{function.__module__}.{function.__qualname__}"
                found.append(("patched_function", f"the code of {where} was replaced by the candidate"))
        for (what, read), before in zip(_SETTINGS, self._settings, strict=True):
            value = read()
            if value != before:
                found.append(("changed_setting", f"{what} went from {before} to {value}"[:400]))
        for name, before, now in zip(_OPERATORS, self._registered, _registrations(), strict=True):
            if before != now:
                found.append(("patched_function", f"{name} was registered anew in PyTorch's dispatcher"))
        if not torch.equal(torch.get_rng_state(), self._random_state):
            found.append(("changed_random_state", "the state of torch's global random generator was changed"))
        return found[:20]

    def _planted(self, suspects: Collection[str]) -> list[tuple[str, str]]:
        """Find functions of the candidate in watched modules that were not there at the snapshot."""
        found = []
        for name, module in _watched_modules().items():
            if name in self._modules:
                continue
            classes = [(f"{name}.{key}", vars(value)) for key, value in vars(module).items() if type(value) is type]
            for owner, namespace in [(name, vars(module)), *classes]:
                for attribute, value in list(namespace.items()):
                    value = getattr(value, "__func__", value) if type(value) in (staticmethod, classmethod) else value
                    if type(value) is types.FunctionType and value.__code__.co_filename in suspects:
                        found.append(("patched_function", f"{owner}.{attribute} was replaced by the candidate"))
        return found
