"""A stand-in for a function in the namespace of a model's file, for as long as a model uses kernels.

The stand-in does what the function does, except in the forward of a module that has said (`owner`) what
is to be done instead.  So other models of the same file, and other threads, are not concerned.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import nn

__all__ = ["Function", "StandIn", "functions_of", "install", "owner", "uninstall"]

Key = tuple[int, str]
StandIn = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class _Owner(threading.local):
    """Whose own code is at work: functions that a child calls are not its parent's."""

    mode: Any = None
    functions: Mapping[Key, StandIn] = {}


owner = _Owner()


class Function:
    """A Python function under its name in the namespace of a file.

    Attributes:
        namespace: The file's globals.
        name: The function's name there.
        value: The function.
        key: Tells it from all others.
    """

    def __init__(self, namespace: dict[str, Any], name: str) -> None:
        self.namespace, self.name = namespace, name
        self.value = namespace[name]
        self.key: Key = (id(namespace), name)
        self.users = 0

    def replaced(self, new: Callable[..., Any]) -> Callable[..., Any]:
        """Put something else in its place, and return what is there now."""
        before: Callable[..., Any] = self.namespace[self.name]
        self.namespace[self.name] = new
        return before


_INSTALLED: dict[Key, tuple[Function, Callable[..., Any]]] = {}
_lock = threading.Lock()


def functions_of(model: nn.Module) -> Iterator[Function]:
    """The Python functions that stand in the files of the model's modules, PyTorch's own left out."""
    seen: set[int] = set()
    for module in model.modules():
        forward = inspect.unwrap(type(module).forward)
        namespace = getattr(forward, "__globals__", None)
        if namespace is None or id(namespace) in seen or _of_pytorch(namespace.get("__name__")):
            continue
        seen.add(id(namespace))
        for name, value in list(namespace.items()):
            if isinstance(value, FunctionType) and not _of_pytorch(value.__module__):
                yield Function(namespace, name)


def _of_pytorch(name: Any) -> bool:
    return str(name).partition(".")[0] == "torch"


def install(function: Function) -> None:
    """Let a stand-in take the function's place; once for all that ask for it."""
    with _lock:
        known = _INSTALLED.get(function.key)
        if known is None:
            known = _INSTALLED[function.key] = (function, _stand_in(function))
            function.value = function.replaced(known[1])
        known[0].users += 1


def uninstall(function: Function) -> None:
    """Put the function back when the last who asked for the stand-in is gone."""
    with _lock:
        known = _INSTALLED[function.key]
        known[0].users -= 1
        if known[0].users == 0:
            del _INSTALLED[function.key]
            if known[0].namespace.get(function.name) is known[1]:  # else another tool has wrapped it meanwhile
                known[0].replaced(known[0].value)


def _stand_in(function: Function) -> Callable[..., Any]:
    original, key = function.value, function.key

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        instead = owner.functions.get(key)
        return original(*args, **kwargs) if instead is None else instead(original, args, kwargs)

    return stand_in
