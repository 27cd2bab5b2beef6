"""One place in the model where a kernel may run, and the guard that decides at each call.

The guard lets a kernel run only on plain tensors of its device whose sizes, dtypes and options were
verified, with nothing that a kernel has no part in: gradients, autocast, transforms.  Everything
else is the original's, and both are counted with the reason.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autokernel.integration.coverage import Sizes
from autokernel.integration.kernels import Kernel
from autokernel.integration.operators import operator_of
from autokernel.integration.requests import FIXED_SIZES, Request, finish, key_of
from autokernel.ops.spec import DTYPES

__all__ = ["Guard", "Site"]

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_PLAIN = (Tensor, torch.nn.Parameter)


class Guard:
    """Which kernel may take a call.

    Args:
        kernels: All kernels of the model, in the order of preference.
        rule: ``verified``: only sizes that were verified; ``checked``: also calls on which the
            kernel was right when the model was traced; ``range``: also sizes between verified ones.
    """

    def __init__(self, kernels: Sequence[Kernel], rule: str) -> None:
        self.kernels = tuple(kernels)
        self.rule = rule
        self.operators = {kernel.digest: operator_of(kernel, self._counter(kernel)) for kernel in kernels}
        self.compiled_calls: Counter[str] = Counter()
        self.refused: dict[str, dict[tuple[Sizes, str], None]] = {}  # by operation: sizes and dtypes, in order
        self._found: dict[Any, str] = {}  # of the calls that were tried: "" or what was wrong
        self._decisions: dict[tuple[Any, ...], tuple[Kernel | None, str]] = {}

    def _counter(self, kernel: Kernel) -> Callable[[], None]:
        def count() -> None:
            self.compiled_calls[kernel.name] += 1

        return count

    def note(self, kernel: Kernel, request: Request, problem: str) -> None:
        """Remember how a kernel fared on a real call: ``problem`` is "" if it was right."""
        key = (kernel.digest, *key_of(request))
        self._found[key] = problem
        self._decisions.clear()

    def tried(self, kernel: Kernel, request: Request) -> bool:
        """Whether a call of this form was tried on the kernel."""
        return (kernel.digest, *key_of(request)) in self._found

    def found(self, kernel: Kernel, request: Request) -> str:
        """What was wrong when a call of this form was tried on the kernel; "" if nothing was."""
        return self._found.get((kernel.digest, *key_of(request)), "")

    def choose(self, request: Request) -> tuple[Kernel | None, str]:
        """The kernel for a call, or None and the reason why there is none."""
        key = key_of(request)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self.decide(request)
            if decision[0] is None:
                dtype = request.inputs[0].dtype
                self.refused.setdefault(request.operation, {})[request.sizes, _NAMES.get(dtype, str(dtype))] = None
        return decision

    def decide(self, request: Request) -> tuple[Kernel | None, str]:
        """As `choose`, without remembering."""
        reason = f"no kernel for {request.operation}"
        for kernel in self.kernels:
            if kernel.operation == request.operation:
                reason = self.objection(kernel, request)
                if not reason:
                    return kernel, ""
        return None, reason

    def objection(self, kernel: Kernel, request: Request) -> str:
        """Why a kernel may not take a call; "" if it may."""
        if any(value.device.type != kernel.device for value in request.inputs):
            return f"not on {kernel.device}"
        dtypes = {value.dtype for value in request.inputs if value.is_floating_point()}
        if len(dtypes) != 1 or not dtypes <= _NAMES.keys():
            return "inputs of several dtypes, or of none that kernels take"
        dtype = _NAMES[dtypes.pop()]
        found = self._found.get((kernel.digest, *key_of(request)))
        if found:
            return found
        lacking = [name for name, value in request.options if name in kernel.lacks and value != kernel.lacks[name]]
        if lacking:
            return f"its kernel_fn takes no {lacking[0]}"
        if kernel.evidence is None:
            return "" if dtype in kernel.spec.dtypes else f"{dtype} is no dtype of {kernel.operation}"
        if found == "" and self.rule == "checked":
            return ""
        return kernel.evidence.objection(request.sizes, dtype, request.options, ranges=self.rule == "range")

    def may_ever_take(self, request: Request) -> bool:
        """Whether a call from the same place, with other numbers of rows, could be a kernel's."""
        if self.decide(request)[0] is not None:
            return True
        names = FIXED_SIZES[request.operation]
        fixed = {name: size for name, size in request.sizes if name in names}
        dtype = _NAMES.get(request.inputs[0].dtype, "")
        mine = [kernel for kernel in self.kernels if kernel.operation == request.operation]
        return any(kernel.evidence is None or kernel.evidence.concerns(fixed, dtype) for kernel in mine)


@dataclasses.dataclass(eq=False)
class Site:
    """One place: a function as one module calls it, or a module as a whole.

    Attributes:
        path: The module's path in the model; "" is the model itself.
        operation: The operation that it computes.
        what: The function's name, or the module's class.
        guard: Decides.
        enabled: False sends every call to the original, uncounted.
        kernel_calls: How often each kernel ran, by its name.
        original_calls: How often the original ran, by reason.
    """

    path: str
    operation: str
    what: str
    guard: Guard
    enabled: bool = True
    kernel_calls: Counter[str] = dataclasses.field(default_factory=Counter)
    original_calls: Counter[str] = dataclasses.field(default_factory=Counter)

    def attempt(self, request: Request | str) -> Tensor | None:
        """Run the kernel if the guard lets it, and return the model's value; None means: the original."""
        if torch.compiler.is_compiling():
            return self._attempt_compiled(request)
        values = self.attempt_all(request if isinstance(request, str) else [request])
        return None if values is None else values[0]

    def attempt_all(self, requests: Sequence[Request] | str) -> list[Tensor] | None:
        """Run the kernels of a call that is several requests, if the guard lets all of them; None: the original."""
        if not self.enabled:
            return None
        if isinstance(requests, str):
            self._leave(requests)
            return None
        chosen = []
        for request in requests:
            reason = _obstacle(request)
            kernel = None
            if not reason:
                kernel, reason = self.guard.choose(request)
            if kernel is None:
                self._leave(reason)
                return None
            chosen.append(kernel)
        values = []
        for kernel, request in zip(chosen, requests, strict=True):
            try:
                values.append(finish(request, kernel.call(request.inputs, dict(request.options))))
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                self._give_up(kernel, request, error)
                return None
        self.kernel_calls.update(kernel.name for kernel in chosen)
        return values

    def _attempt_compiled(self, request: Request | str) -> Tensor | None:
        # Traced by torch.compile: what is decided here is guarded by it, and nothing is counted.
        if isinstance(request, str) or not self.enabled or _needs_gradients(request) or _is_autocast(request):
            return None
        kernel, _reason = self.guard.decide(request)
        if kernel is None:
            return None
        values = [value for _name, value in request.options]
        return finish(request, self.guard.operators[kernel.digest](*request.inputs, *values))

    def _leave(self, reason: str) -> None:
        self.original_calls[reason] += 1

    def _give_up(self, kernel: Kernel, request: Request, error: Exception) -> None:
        problem = f"the kernel raised {type(error).__name__}"
        self.guard.note(kernel, request, problem)
        warnings.warn(
            f"{kernel.name} raised {type(error).__name__}: {error}; calls of this form use the original from now on",
            RuntimeWarning,
            stacklevel=2,
        )
        self._leave(problem)


def _needs_gradients(request: Request) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any(value is not None and value.requires_grad for value in (*request.inputs, request.bias))


def _is_autocast(request: Request) -> bool:
    return torch.is_autocast_enabled(request.inputs[0].device.type)


def _obstacle(request: Request) -> str:
    """What about the circumstances of a call leaves it to the original; "" if nothing does."""
    if _needs_gradients(request):
        return "gradients are required"
    if _is_autocast(request):
        return "autocast is on"
    for value in request.inputs:
        if type(value) not in _PLAIN or value.layout is not torch.strided or value.is_neg():
            return "a tensor that is not plain"
    if torch._C._is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None:
        return "inside a transform or a trace"
    return ""
