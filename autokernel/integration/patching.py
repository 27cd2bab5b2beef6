"""How a module is made to use kernels, and how it becomes itself again.

The module's class is replaced by a subclass of it, made for this one module, whose ``forward``
tries the kernels first.  Nothing is added to the module's own attributes, so its state_dict, its
parameters, hooks and children stay what they are.  A copy or a pickle of the module is of the
original class: plain, without kernels.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from autokernel.errors import UsageError
from autokernel.integration.composites import Composite
from autokernel.integration.functions import DIRECT, read_call
from autokernel.integration.rotations import Rotation
from autokernel.integration.sites import Site
from autokernel.integration.standins import Key, StandIn, owner

__all__ = ["Patch", "is_patched"]

Forward = Callable[..., Any]


class _FunctionMode(TorchFunctionMode):
    """Sends the functions of one module's own code to their sites."""

    def __init__(self, sites: Mapping[Any, Site]) -> None:
        super().__init__()
        self.sites = dict(sites)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        site = self.sites.get(func)
        if site is not None and (torch.compiler.is_compiling() or owner.mode is self):
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
        rotations: The sites of functions of the model's own files that its code calls, and how each is read.
        extra: Further attributes of the class.

    Raises:
        UsageError: The module cannot be patched.
    """

    def __init__(
        self,
        module: nn.Module,
        functions: Mapping[Any, Site],
        composite: tuple[Site, Composite] | None,
        rotations: Mapping[Key, tuple[Site, Rotation]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.module = module
        self.original = type(module)
        if "forward" in vars(module):
            raise UsageError(f"a {self.original.__name__} has a forward of its own instance, set by another tool")
        stand_ins = {key: _turning(*one) for key, one in (rotations or {}).items()}
        forward = _forward(self.original.forward, functions, composite, stand_ins)
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


def _forward(
    original: Forward,
    functions: Mapping[Any, Site],
    composite: tuple[Site, Composite] | None,
    stand_ins: Mapping[Key, StandIn],
) -> Forward:
    direct = DIRECT.get(original)
    if direct is not None and set(functions) == {direct[0]}:
        plain = _direct_forward(original, direct[0], direct[1], functions[direct[0]])
    else:
        plain = _owning_forward(original, _FunctionMode(functions) if functions else None, stand_ins)
    return plain if composite is None else _composite_forward(plain, *composite)


def _direct_forward(original: Forward, function: Any, arguments: Callable[..., tuple[Any, ...]], site: Site) -> Forward:
    def forward(self: Any, input: Tensor) -> Any:
        value = site.attempt(read_call(function, arguments(self, input), {})) if site.enabled else None
        return value if value is not None else owned(self, input)

    owned = _owning_forward(original, None, {})
    return forward


def _composite_forward(plain: Forward, site: Site, form: Composite) -> Forward:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        value = site.attempt(form.read(self, args, kwargs)) if site.enabled else None
        return value if value is not None else plain(self, *args, **kwargs)

    return forward


def _owning_forward(original: Forward, mode: _FunctionMode | None, stand_ins: Mapping[Key, StandIn]) -> Forward:
    """The original, in whose own code the functions go to their sites; they are no other module's."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if mode is None:
            return original(self, *args, **kwargs)
        with mode:
            return original(self, *args, **kwargs)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return run(self, *args, **kwargs)
        before = owner.mode, owner.functions
        if before == (mode, stand_ins):
            return run(self, *args, **kwargs)
        owner.mode, owner.functions = mode, stand_ins
        try:
            return run(self, *args, **kwargs)
        finally:
            owner.mode, owner.functions = before

    return forward


def _turning(site: Site, form: Rotation) -> StandIn:
    """What is done instead of a function that turns queries and keys."""

    def instead(original: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = owner.mode, owner.functions
        owner.mode, owner.functions = None, {}
        try:
            requests = form.read(original, args, kwargs) if site.enabled else ""
            values = site.attempt_all(requests)
            if values is None or isinstance(requests, str):
                return original(*args, **kwargs)
            turned = form.turned(original, args, kwargs)
            results = [form.to_model(*one) for one in zip(requests, values, turned, strict=True)]
            return results[0] if form.tensors == 1 else tuple(results)
        finally:
            owner.mode, owner.functions = before

    return instead


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
