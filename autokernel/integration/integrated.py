"""Kernels in a model: put in, switched off for a while, counted, taken out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from autokernel import ops
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.integration.coverage import in_words
from autokernel.integration.evidence import RULES
from autokernel.integration.kernels import Kernel, find_kernels
from autokernel.integration.patching import Patch, is_patched
from autokernel.integration.report import Gap, PlaceReport, Report
from autokernel.integration.requests import FIXED_SIZES
from autokernel.integration.sites import Guard, Site
from autokernel.integration.standins import Function, install, uninstall
from autokernel.integration.tracing import Places, trace
from autokernel.integration.trees import Call, as_call

__all__ = ["Integration", "integrate", "integration_of"]


def integrate(
    model: nn.Module,
    kernels: Any,
    inputs: Any = None,
    *,
    admit: str = "verified",
    verify: bool = False,
    unverified: bool = False,
) -> Any:
    """Make a model use kernels wherever a call was verified; everything else stays the original's.

    The model itself is changed, reversibly, and returned: ``model.restore()`` (or leaving a ``with``
    block) makes it what it was, ``model.report()`` says how often kernels and originals ran, and why.
    Its parameters, buffers, state_dict and hooks are untouched; a deep copy or a pickle of it is the
    plain model.  A kernel has no backward: where gradients are required, the original runs.

    Args:
        model: Any module in eager mode, on the kernels' device.  Compile it afterwards.
        kernels: Run folders (paths or `RunFolder`), kernel.py files, texts of kernels, or a mix.  Of a
            run, the kernel that it has kept.
        inputs: A tensor, a tuple of positional arguments or a dictionary of keyword arguments, with
            which the model is run once to find the places.  When None, the first call is used.
        admit: ``verified``: only sizes, dtypes and options that were verified or timed.  ``checked``:
            also calls of exactly the form (sizes, dtype, options) on which the kernel agreed with the
            float64 reference when the model was traced.  ``range``: also sizes between verified ones.
        verify: Verify kernels without an accepted verdict now, each in a process of its own.
        unverified: Load kernels without a verdict, and call them on any sizes.

    Raises:
        UsageError: The model, the inputs or a kernel cannot be used; the message says why.
    """
    _refuse(model, admit)
    found = find_kernels(kernels, verify=verify, unverified=unverified, device=_device(model))
    for kernel in found:
        if kernel.operation not in FIXED_SIZES or kernel.spec is not ops.get(kernel.operation):
            raise UsageError(
                f"{kernel.name} computes {kernel.operation!r}, an operation without a known place in a model; "
                f"placed are: {', '.join(FIXED_SIZES)}"
            )
    integration = Integration(model, found, admit)
    if inputs is None:
        integration.wait_for_inputs()
    else:
        integration.learn(as_call(inputs))
    return model


def integration_of(model: nn.Module) -> Integration:
    """The integration of a model that `integrate` returned.

    Raises:
        UsageError: The model has no kernels now.
    """
    found = getattr(type(model), "_autokernel_integration", None)
    if not isinstance(found, Integration):
        raise UsageError("the model has no kernels; put them in with autokernel.integrate(model, kernels)")
    return found


def _refuse(model: Any, admit: str) -> None:
    if not isinstance(model, nn.Module):
        raise UsageError(f"the model is a {type(model).__name__}; give a torch.nn.Module")
    if admit not in RULES:
        raise UsageError(f"admit is {admit!r}{did_you_mean(admit, RULES)}; use {', '.join(map(repr, RULES))}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("the model is a TorchScript module, whose code is fixed; give the module it was made from")
    if type(model).__name__ == "OptimizedModule" and hasattr(model, "_orig_mod"):
        raise UsageError("the model is compiled already; integrate first, then torch.compile(model)")
    if any(is_patched(module) for module in model.modules()):
        raise UsageError("the model, or a part of it, has kernels already; take them out with model.restore()")
    if any(value.is_meta for value in model.parameters()):
        raise UsageError("the model has parameters on the meta device; give them values first (model.to_empty, load)")


def _device(model: nn.Module) -> str:
    first = next(model.parameters(), None)
    return "auto" if first is None else str(first.device)


class Integration:
    """The kernels of one model.

    Attributes:
        model: The model.
        guard: Decides which call a kernel may take.
        places: What the trace has found.
    """

    def __init__(self, model: nn.Module, kernels: list[Kernel], rule: str) -> None:
        self.model = model
        self.guard = Guard(kernels, rule)
        self.places = Places()
        self._notes = [
            f"{kernel.name} was slower than PyTorch in its own run: {kernel.speedup.value:.3f}x"
            for kernel in kernels
            if kernel.speedup is not None and kernel.speedup.high < 1 and not (kernel.model_speedup or 0.0) > 1
        ]
        self._patches: list[Patch] = []
        self._applied = False
        self._waiting = False

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.guard.kernels

    @property
    def waiting(self) -> bool:
        """Whether the places are still unknown, because no inputs were given."""
        return self._waiting

    @property
    def sites(self) -> list[Site]:
        """All places where a kernel may run."""
        return self.places.sites

    def wait_for_inputs(self) -> None:
        """Look for the places when the model is first called."""
        integration = self
        original = type(self.model).forward

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not integration._waiting:
                return original(self, *args, **kwargs)
            integration.restore()
            integration.learn(Call(args, kwargs))
            return type(self).forward(self, *args, **kwargs)

        patch = Patch(self.model, {}, None, extra=self._handles(type(self.model)))
        patch.patched.forward = forward  # type: ignore[attr-defined]
        self._patches, self._waiting = [patch], True
        self._apply()

    def learn(self, call: Call) -> None:
        """Find the places by one run of the plain model, and put the kernels in."""
        self._waiting = False
        self.places = trace(self.model, call, self.guard)
        self._patches = []
        for path, module in self.model.named_modules():
            functions = {func: site for (where, func), site in self.places.functions.items() if where == path}
            composite = self.places.composites.get(path)
            rotations = {key: (one[0], one[1]) for (where, key), one in self.places.rotations.items() if where == path}
            extra = self._handles(type(module)) if module is self.model else None
            if functions or rotations or composite is not None or extra is not None:
                try:
                    self._patches.append(Patch(module, functions, composite, rotations, extra))
                except UsageError as error:
                    if module is self.model:
                        raise
                    self._forget(path, str(error))
        self._apply()

    def _forget(self, path: str, reason: str) -> None:
        for where, func in [key for key in self.places.functions if key[0] == path]:
            site = self.places.functions.pop((where, func))
            self.places.refused[(path, site.what)] = reason
        for where, key in [key for key in self.places.rotations if key[0] == path]:
            self.places.refused[(path, self.places.rotations.pop((where, key))[0].what)] = reason
        if path in self.places.composites:
            self.places.refused[(path, self.places.composites.pop(path)[0].what)] = reason

    def _handles(self, original: type) -> dict[str, Any]:
        """What the model's class offers in addition, where its own class has nothing of that name."""
        integration = self
        offered: dict[str, Any] = {
            "restore": lambda self: integration.restore(),
            "report": lambda self: integration.report(),
            "__enter__": lambda self: self,
            "__exit__": lambda self, *exception: integration.restore(),
        }
        missing = {name: value for name, value in offered.items() if not hasattr(original, name)}
        return {**missing, "_autokernel_integration": self}

    def _apply(self) -> None:
        for patch in self._patches:
            patch.apply()
        for function in self._functions():
            install(function)
        self._applied = True

    def restore(self) -> None:
        """Make the model what it was before; done already, it does nothing.

        Raises:
            UsageError: Another tool has changed the class of one of its modules meanwhile.
        """
        if self._applied:
            for patch in self._patches:
                patch.undo()
            for function in self._functions():
                uninstall(function)
            self._applied = False

    def _functions(self) -> list[Function]:
        """The functions of the model's files that a kernel may stand for, each once."""
        return list({function.key: function for _site, _form, function in self.places.rotations.values()}.values())

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Within the block the model is the plain one, to the last attribute."""
        was_applied = self._applied
        self.restore()
        try:
            yield
        finally:
            if was_applied:
                self._apply()

    @contextlib.contextmanager
    def only(self, sites: Iterable[Site]) -> Iterator[None]:
        """Within the block kernels run at these places only."""
        wanted = {id(site) for site in sites}
        before = [(site, site.enabled) for site in self.sites]
        try:
            for site in self.sites:
                site.enabled = id(site) in wanted
            yield
        finally:
            for site, enabled in before:
                site.enabled = enabled

    def reset_counts(self) -> None:
        """Count from zero again."""
        for site in self.sites:
            site.kernel_calls.clear()
            site.original_calls.clear()
        self.guard.compiled_calls.clear()

    def _gaps(self) -> Iterator[Gap]:
        """What the guard refused to kernels that ran nowhere, beside what was verified."""
        ran = {name for site in self.sites for name in site.kernel_calls} | set(self.guard.compiled_calls)
        for kernel in self.kernels:
            refused = list(self.guard.refused.get(kernel.operation, ()))
            if refused and kernel.evidence is not None and kernel.name not in ran:
                nearest = kernel.evidence.nearest(*refused[0])
                yield Gap(
                    kernel=kernel.name,
                    operation=kernel.operation,
                    seen=tuple(in_words(*one) for one in refused),
                    nearest=tuple(in_words(*one) for one in nearest),
                )

    def report(self) -> Report:
        """Where kernels stand, and how often they and the originals ran since the last reset."""
        placed = {site.operation for site in self.sites}
        notes = ["the model was not called yet, so no place is known"] if self._waiting else []
        return Report(
            places=tuple(
                PlaceReport(
                    path=site.path, operation=site.operation, what=site.what, kernel_calls=dict(site.kernel_calls),
                    original_calls=dict(site.original_calls),
                )
                for site in self.sites
            ),
            refused=dict(self.places.refused),
            compiled_calls=dict(self.guard.compiled_calls),
            unused=tuple(kernel.name for kernel in self.kernels if kernel.operation not in placed),
            notes=tuple(notes + self._notes),
            gaps=tuple(self._gaps()),
        )  # fmt: skip
