"""How a module is made to use kernels, and how it becomes itself again.

The module's class is replaced by a subclass of it, made for this one module, whose ``forward``
tries the kernels first.  Nothing is added to the module's own attributes, so its state_dict, its
parameters, hooks and children stay what they are.  A copy or a pickle of the module is of the
original class: plain, without kernels.
"""

from __future__ import annotations

import copyreg
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from autokernel.errors import UsageError
from autokernel.integration.composites import Composite
from autokernel.integration.functions import DIRECT, read_call
from autokernel.integration.sites import Site

__all__ = ["Patch", "is_patched"]

Forward = Callable[..., Any]


class _Owner(threading.local):
    """Whose own code is at work: functions that a child calls are not its parent's."""

    mode: Any = None


_owner = _Owner()


class _FunctionMode(TorchFunctionMode):
    """Sends the functions of one module's own code to their sites."""

    def __init__(self, sites: Mapping[Any, Site]) -> None:
        super().__init__()
        self.sites = dict(sites)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        site = self.sites.get(func)
        if site is not None and (torch.compiler.is_compiling() or _owner.mode is self):
            value = site.attempt(read_call(func, args, kwargs or {}))
            if value is not None:
                return value
        return func(*args, **(kwargs or {}))


def is_patched(module: nn.Module) -> bool:
    """Whether a module uses kernels now."""
    return hasattr(type(module), "_autokernel_original")


class Patch:
    """One module with its kernels.

    Args:
        module: The module.
        functions: The sites of the functions that its own code calls.
        composite: The site of the module as a whole, and how it is read.
        extra: Further attributes of the class.

    Raises:
        UsageError: The module cannot be patched.
    """

    def __init__(
        self,
        module: nn.Module,
        functions: Mapping[Any, Site],
        composite: tuple[Site, Composite] | None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.original = type(module)
        if "forward" in vars(module):
            raise UsageError(f"a {self.original.__name__} has a forward of its own instance, set by another tool")
        forward = _forward(self.original.forward, functions, composite)
        self.patched = _subclass(self.original, {"forward": forward, **(extra or {})})

    def apply(self) -> None:
        """Put the kernels in."""
        self.module.__class__ = self.patched

    def undo(self) -> None:
        """Take them out.

        Raises:
            UsageError: Another tool has changed the module's class meanwhile.
        """
        if type(self.module) is not self.patched:
            raise UsageError(
                f"the class of a {self.original.__name__} was changed to {type(self.module).__name__} by another tool "
                "after the kernels were put in; undo that first"
            )
        self.module.__class__ = self.original


def _forward(original: Forward, functions: Mapping[Any, Site], composite: tuple[Site, Composite] | None) -> Forward:
    direct = DIRECT.get(original)
    if direct is not None and set(functions) == {direct[0]}:
        plain = _direct_forward(original, direct[0], direct[1], functions[direct[0]])
    elif functions:
        plain = _mode_forward(original, functions)
    else:
        plain = _owning_forward(original)
    return plain if composite is None else _composite_forward(plain, *composite)


def _direct_forward(original: Forward, function: Any, arguments: Callable[..., tuple[Any, ...]], site: Site) -> Forward:
    def forward(self: Any, input: Tensor) -> Any:
        value = site.attempt(read_call(function, arguments(self, input), {})) if site.enabled else None
        return value if value is not None else owned(self, input)

    owned = _owning_forward(original)
    return forward


def _composite_forward(plain: Forward, site: Site, form: Composite) -> Forward:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = site.attempt(form.read(self, args, kwargs)) if site.enabled else None
        return value if value is not None else plain(self, *args, **kwargs)

    return forward


def _mode_forward(original: Forward, functions: Mapping[Any, Site]) -> Forward:
    mode = _FunctionMode(functions)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            with mode:
                return original(self, *args, **kwargs)
        before, _owner.mode = _owner.mode, mode
        try:
            with mode:
                return original(self, *args, **kwargs)
        finally:
            _owner.mode = before

    return forward


def _owning_forward(original: Forward) -> Forward:
    """The original, whose functions are no other module's."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or _owner.mode is None:
            return original(self, *args, **kwargs)
        before, _owner.mode = _owner.mode, None
        try:
            return original(self, *args, **kwargs)
        finally:
            _owner.mode = before

    return forward


def _subclass(original: type, attributes: Mapping[str, Any]) -> type:
    """A subclass that looks like its base, and whose instances are copied and pickled as their base."""

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        reduced = super(patched, self).__reduce_ex__(protocol)
        if isinstance(reduced, str):
            return reduced
        function, arguments, *rest = reduced
        if getattr(function, "__name__", "") == "__newobj__" and arguments == (patched,):
            # pickle insists that __newobj__ makes the very class of the object
            function, arguments = copyreg._reconstructor, (original, object, None)  # type: ignore[attr-defined]
        return (function, tuple(original if one is patched else one for one in arguments), *rest)

    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    patched: Any = type(
        original.__name__,
        (original,),
        {**names, **attributes, "__reduce_ex__": __reduce_ex__, "_autokernel_original": original},
    )
    return patched
