"""One observed forward of the unmodified model: where could a kernel stand?

Each call of a known function is read and put down to the innermost module that made it; modules
that may be composites are tried.  Wherever the guard would admit a kernel, the kernel is run on the
real input beside the original, and its result is judged against float64 as the verifier does it.
The model's buffers, random state and inputs are left as they were.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from autokernel.errors import UsageError
from autokernel.integration.composites import Composite, recognise
from autokernel.integration.functions import FUNCTIONS, read_call
from autokernel.integration.kernels import Kernel
from autokernel.integration.requests import Request, finish
from autokernel.integration.rotations import Rotation, recognise_rotation
from autokernel.integration.sites import Guard, Site
from autokernel.integration.standins import Function, Key, functions_of
from autokernel.integration.trees import Call, clone
from autokernel.ops.spec import DTYPES, Case
from autokernel.verifier import golden

__all__ = ["Places", "trace"]

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LEAST_ARGUMENTS = 3  # of a function that turns queries or keys
_SAME_FUNCTION = 0.02  # relative: rounding and TF32 stay below, another formula does not


class Places:
    """What a trace has found.

    Attributes:
        functions: Sites by the module's path and the function.
        composites: Sites by the module's path, with how the module is read.
        rotations: Sites by the module's path and a function of the model's files, with how it is read.
        refused: Calls that could never be a kernel's: path, function or class, and why.
    """

    def __init__(self) -> None:
        self.functions: dict[tuple[str, Any], Site] = {}
        self.composites: dict[str, tuple[Site, Composite]] = {}
        self.rotations: dict[tuple[str, Key], tuple[Site, Rotation, Function]] = {}
        self.refused: dict[tuple[str, str], str] = {}

    @property
    def sites(self) -> list[Site]:
        """All sites, composites first."""
        of_functions = [*self.functions.values(), *[one[0] for one in self.rotations.values()]]
        return [site for site, _form in self.composites.values()] + of_functions


def trace(model: nn.Module, call: Call, guard: Guard) -> Places:
    """Run the model once, without gradients, and return the places for the guard's kernels.

    Raises:
        UsageError: The model fails on these inputs; the error is chained.
    """
    hooked = {one for one in model.modules() if one._forward_hooks or one._forward_pre_hooks}
    observer = _Observer(guard, hooked)
    paths = {module: path for path, module in model.named_modules()}
    with _as_it_was(model), _observed(paths, observer), _observed_functions(model, observer), torch.no_grad():
        copied = clone(call)
        try:
            with observer:
                model(*copied.args, **copied.kwargs)
        except Exception as error:
            raise UsageError(
                f"the unmodified model fails on the given inputs: {type(error).__name__}: {error}; "
                "pass inputs that model(...) accepts"
            ) from error
    return observer.places


@contextlib.contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Put buffers and random state back afterwards: an observed forward must leave no trace."""
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if buffer.device.type != "meta"]
    devices = sorted({value.device.index or 0 for value in model.parameters() if value.is_cuda})
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in kept:
                    if buffer.shape == value.shape:
                        buffer.copy_(value)


@contextlib.contextmanager
def _observed(paths: dict[nn.Module, str], observer: _Observer) -> Iterator[None]:
    """Follow which module is at work, by hooks that are removed again."""
    handles = []
    try:
        for module, path in paths.items():
            handles.append(module.register_forward_pre_hook(lambda _m, _i, path=path: observer.enter(path)))
            hook = observer.leave
            handles.append(module.register_forward_hook(hook, with_kwargs=True, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _observed_functions(model: nn.Module, observer: _Observer) -> Iterator[None]:
    """Follow the functions of the model's own files, where a kernel may stand for one."""
    before: list[tuple[Function, Any]] = []
    try:
        if "rotary_embedding" in observer.operations:
            for function in functions_of(model):
                before.append((function, function.replaced(observer.watching(function))))
        yield
    finally:
        for function, value in before:
            function.replaced(value)


class _Observer(TorchFunctionMode):
    def __init__(self, guard: Guard, hooked: Collection[nn.Module]) -> None:
        super().__init__()
        self.guard = guard
        self.hooked = hooked
        self.places = Places()
        self.stack: list[str] = []
        self.operations = sorted({kernel.operation for kernel in guard.kernels})
        self._busy = False

    def __deepcopy__(self, memo: Any) -> _Observer:
        return self  # a module that is copied, to be tried, has hooks of ours

    # Modules

    def enter(self, path: str) -> None:
        self.stack.append(path)

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        path = self.stack.pop() if self.stack else ""
        values = [*args, *kwargs.values()]
        if len(values) != 1 or not isinstance(values[0], Tensor) or not isinstance(output, Tensor):
            return
        if path in self.places.composites or type(module).__module__.startswith("torch.nn."):
            return
        with self._aside():
            form = recognise(module, values[0], self.operations, self.hooked)
            if form is None:
                return
            request = form.read(module, args, kwargs)
            what = type(module).__name__
            if isinstance(request, Request) and self._usable(path, what, request, output):
                site = Site(path, request.operation, what, self.guard)
                self.places.composites[path] = (site, form)

    # Functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = None if self._busy else FUNCTIONS.get(func)
        if known is None or known[1] not in self.operations:
            return func(*args, **kwargs)
        request = read_call(func, args, kwargs)  # before the call, which may write into its arguments
        output = func(*args, **kwargs)
        path, name = self.stack[-1] if self.stack else "", known[0]
        with self._aside():
            if isinstance(request, str):
                if (path, func) not in self.places.functions:
                    self.places.refused.setdefault((path, name), request)
            elif isinstance(output, Tensor) and self._usable(path, name, request, output):
                self.places.refused.pop((path, name), None)
                key = (path, func)
                if key not in self.places.functions:
                    self.places.functions[key] = Site(path, known[1], name, self.guard)
        return output

    def watching(self, function: Function) -> Any:
        """The function, seen when it is called."""

        @functools.wraps(function.value)
        def watched(*args: Any, **kwargs: Any) -> Any:
            output = function.value(*args, **kwargs)
            if not self._busy and len(args) + len(kwargs) >= _LEAST_ARGUMENTS:
                with self._aside():
                    self._called(function, args, kwargs, output)
            return output

        return watched

    def _called(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        path = self.stack[-1] if self.stack else ""
        if (path, function.key) in self.places.rotations:
            return
        form = recognise_rotation(function.value, args, kwargs)
        if form is None:
            return
        requests = form.read(function.value, args, kwargs)
        if isinstance(requests, str):
            self.places.refused.setdefault((path, function.name), requests)
            return
        outputs = [output] if form.tensors == 1 else list(output)
        whole = [form.to_request(*one) for one in zip(requests, outputs, strict=True)]
        usable = [self._usable(path, function.name, *one) for one in zip(requests, whole, strict=True)]
        if all(usable):
            self.places.refused.pop((path, function.name), None)
            site = Site(path, "rotary_embedding", function.name, self.guard)
            self.places.rotations[path, function.key] = (site, form, function)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """What is computed meanwhile is ours, not the model's."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    # Trials

    def _usable(self, path: str, what: str, request: Request, output: Tensor) -> bool:
        """Try the kernels on a real call; False if none of them could ever take one from here."""
        mine = [kernel for kernel in self.guard.kernels if kernel.operation == request.operation]
        problem = ""
        for kernel in mine:
            if not self.guard.tried(kernel, request):
                problem = self._try(kernel, request, output) or problem
        found = [self.guard.found(kernel, request) for kernel in mine]
        if not problem and all(found):
            problem = found[0]
        if problem or not self.guard.may_ever_take(request):
            self.places.refused[(path, what)] = problem or self.guard.choose(request)[1]
            return False
        return True

    def _try(self, kernel: Kernel, request: Request, output: Tensor) -> str:
        """Run a kernel on a real call, if it may be admitted; returns what is wrong with the place."""
        if self.guard.objection(kernel, request) and self.guard.rule != "checked":
            return ""
        dtype = _NAMES.get(request.inputs[0].dtype)
        if dtype is None or request.inputs[0].device.type != kernel.device:
            return ""
        case = Case(shape=dict(request.sizes), dtype=dtype, options=dict(request.options))
        try:
            expected = golden.golden(kernel.spec, case, request.inputs)
        except (torch.cuda.OutOfMemoryError, MemoryError, RuntimeError):
            return ""  # too large for float64 here: the recorded verdict has to do
        if not _reproduced(request, expected.value, output):
            return f"the model's result is not that of {kernel.operation}"
        self.guard.note(kernel, request, _disagreement(kernel, request, expected))
        return ""


def _reproduced(request: Request, expected: Tensor, output: Tensor) -> bool:
    """Whether the original's own result is that of the reference, up to rounding."""
    if output.shape != request.shape:
        return False
    wide = finish(request._replace(dtype=torch.float64), expected)
    error, size = (output.double() - wide).norm(), wide.norm()
    return bool(error <= _SAME_FUNCTION * size) or not bool(torch.isfinite(size))


def _disagreement(kernel: Kernel, request: Request, expected: golden.Golden) -> str:
    """How a kernel's result on a real call differs from the right one; "" if it does not."""
    before: Sequence[Tensor] = [value.clone() for value in request.inputs]
    try:
        actual = kernel.call(request.inputs, dict(request.options))
    except Exception as error:
        return f"the kernel raised {type(error).__name__} on the model's own input: {error}"
    if any(not torch.equal(old, new) for old, new in zip(before, request.inputs, strict=True)):
        return "the kernel changed the model's own input"
    if actual.shape != expected.value.shape or actual.dtype not in golden.OUT_ULPS:
        return f"the kernel returned {actual.dtype} {list(actual.shape)} on the model's own input"
    comparison = golden.compare(actual, expected)
    if comparison.agrees:
        return ""
    return (
        f"the kernel was wrong on the model's own input: {comparison.mismatched} of {comparison.elements} elements, "
        f"by up to {comparison.error_over_bound:.3g} times the bound"
    )
