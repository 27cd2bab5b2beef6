"""The guard of an exported kernel: the kernel runs where it was verified, and PyTorch everywhere else.

A call is the kernel's only if sizes, dtypes and options are among those that passed, on plain tensors of the
device on which they passed, with nothing that a kernel has no part in: gradients, autocast, transforms.
Every exported package carries this file and `coverage`; it needs torch and the standard library only.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autokernel.integration.coverage import Coverage
from autokernel.verifier.layouts import name_of

__all__ = ["GuardedKernel"]

_PLAIN = (Tensor, torch.nn.Parameter)
_ALIGNMENT = 16  # bytes: the widest load of a GPU thread
Options = Mapping[str, Any]
_Key = tuple[Any, ...]


class GuardedKernel:
    """A kernel and the PyTorch code that it stands for.

    Args:
        facts: The path of the package's evidence.json.
        load: Imports the kernel and returns its ``kernel_fn``; called when the first call may be the kernel's.
        original: The same operation in PyTorch, with the same parameters.
    """

    def __init__(self, facts: Path, load: Callable[[], Callable[..., Tensor]], original: Callable[..., Tensor]) -> None:
        self.facts = json.loads(facts.read_text(encoding="utf-8"))
        self.original = original
        self._rows: tuple[int, ...] = tuple(self.facts["rows"])
        self.calls: Counter[str] = Counter()
        self._load = load
        self._function: Callable[..., Tensor] | None = None
        self._takes: frozenset[str] = frozenset()
        self._unloadable = ""
        self._decisions: dict[Any, str] = {}
        self._results: dict[Any, tuple[torch.Size, torch.dtype] | None] = {}
        self._coverage = Coverage(
            cases=frozenset(
                (tuple(map(tuple, sizes)), dtypes, tuple(map(tuple, options)))
                for sizes, dtypes, options in self.facts["cases"]
            ),
            numbers={name: (low, high) for name, (low, high) in self.facts["numbers"].items()},
        )

    def __call__(self, inputs: tuple[Tensor, ...], options: Options) -> Tensor:
        """Run the kernel if the guard lets it, and PyTorch otherwise."""
        reason = self.obstacle(inputs)
        if reason:
            self.calls[f"PyTorch: {reason}"] += 1
            return self.original(*inputs, **options)
        return self.run(inputs, options)

    def leaves(self, inputs: Sequence[Tensor]) -> bool:
        """Whether gradients or autocast leave a call to PyTorch; torch.compile can trace this."""
        if torch.is_grad_enabled() and any(value.requires_grad for value in inputs):
            return True
        return torch.is_autocast_enabled(inputs[0].device.type)

    def report(self) -> dict[str, int]:
        """How often the kernel ran, and how often PyTorch, by reason."""
        return dict(self.calls)

    def obstacle(self, inputs: Sequence[Tensor]) -> str:
        """What about the circumstances of a call leaves it to PyTorch; "" if nothing does."""
        if any(type(value) not in _PLAIN or value.layout is not torch.strided or value.is_neg() for value in inputs):
            return "a tensor that is not plain"
        if self.leaves(inputs):
            return "gradients are required, or autocast is on"
        if torch._C._is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None:
            return "inside a transform or a trace"
        return ""

    def objection(self, inputs: Sequence[Tensor], options: Options) -> str:
        """Why a call is not the kernel's; "" if it is.  Reads shapes, dtypes and devices, never a value."""
        return self._objection(self._key(inputs, options), inputs, options)

    def run(self, inputs: tuple[Tensor, ...], options: Options) -> Tensor:
        """As a call, where circumstances such as gradients were looked at before."""
        key = self._key(inputs, options)
        reason = self._objection(key, inputs, options)
        if not reason:
            try:
                output = self._run_kernel(key, inputs, options)
                self.calls["kernel"] += 1
                return output
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:
                reason = self._decisions[key] = f"the kernel raised {type(error).__name__}"
                self._warn(f"{reason}: {error}; calls of this form use PyTorch from now on")
        self.calls[f"PyTorch: {reason}"] += 1
        return self.original(*inputs, **options)

    def as_operator(self, inputs: tuple[Tensor, ...], options: Options) -> Tensor:
        """As `run`, with a result that is contiguous and no view of an input, as an operator must return it."""
        output = self.run(inputs, options).contiguous()
        storage = output.untyped_storage().data_ptr()
        return output.clone() if any(value.untyped_storage().data_ptr() == storage for value in inputs) else output

    def as_fake(self, inputs: tuple[Tensor, ...], options: Options) -> Tensor:
        """A tensor without values, of the shape and dtype that `as_operator` returns."""
        output = self.original(*inputs, **options)
        return output.new_empty(output.shape)

    def _key(self, inputs: Sequence[Tensor], options: Options) -> _Key:
        forms = tuple([(value.shape, value.dtype, value.device) for value in inputs])
        return forms, tuple(sorted(options.items()))

    def _objection(self, key: _Key, inputs: Sequence[Tensor], options: Options) -> str:
        found = self._decisions.get(key)
        if found is None:
            found = self._decisions[key] = self._decide(inputs, options)
        return found

    def _decide(self, inputs: Sequence[Tensor], options: Options) -> str:
        reason = self._wrong_device(inputs)
        if not reason:
            dtypes = " ".join([str(value.dtype).removeprefix("torch.") for value in inputs])
            sizes = tuple(
                (f"{name}[{place}]", size)
                for index, name in enumerate(self.facts["inputs"])
                for place, size in enumerate(self._folded(index, inputs[index].shape))
            )
            chosen = tuple(sorted(options.items()))
            reason = self._coverage.objection(sizes, dtypes, chosen, ranges=self.facts["admit"] == "range")
        return reason or self._not_loaded()

    def _wrong_device(self, inputs: Sequence[Tensor]) -> str:
        device = self.facts["device"]
        places = {value.device for value in inputs}
        if len(places) != 1 or next(iter(places)).type != device["kind"]:
            return f"not all on one device of kind {device['kind']}"
        if device["kind"] == "cuda" and torch.cuda.get_device_name(next(iter(places))).strip() != device["name"]:
            return f"it was verified on {device['name']}"
        return ""

    def _not_loaded(self) -> str:
        if self._function is None and not self._unloadable:
            try:
                self._function = self._load()
                self._takes = frozenset(inspect.signature(self._function).parameters)
            except Exception as error:
                self._unloadable = f"the kernel cannot be loaded ({type(error).__name__})"
                self._warn(f"{self._unloadable}: {error}; PyTorch runs instead")
        return self._unloadable

    def _run_kernel(self, key: _Key, inputs: tuple[Tensor, ...], options: Options) -> Tensor:
        assert self._function is not None
        if key not in self._results:
            self._results[key] = self._result_of(inputs, options)
        expected = self._results[key]
        passed = [self._laid_out(index, value) for index, value in enumerate(inputs)]
        with _on_device(inputs[0].device):
            output = self._function(*passed, **{name: options[name] for name in options if name in self._takes})
        if self._rows and inputs[self._rows[0]].dim() != 2:
            output = output.reshape(inputs[self._rows[0]].shape[:-1] + output.shape[1:])
        if expected is not None and output.shape != expected[0]:
            raise ValueError(f"the result has shape {tuple(output.shape)} instead of {tuple(expected[0])}")
        return output if expected is None else output.to(expected[1])

    def _result_of(self, inputs: Sequence[Tensor], options: Options) -> tuple[torch.Size, torch.dtype] | None:
        """Shape and dtype of PyTorch's result; None if it does not say without values."""
        try:
            with torch.no_grad():
                output = self.original(*[value.to("meta") for value in inputs], **options)
        except Exception:  # whatever PyTorch has no shape function for
            return None
        return output.shape, output.dtype

    def _folded(self, index: int, shape: torch.Size) -> tuple[int, ...]:
        """The shape as it was verified: leading dimensions of a row-wise input are counted as one."""
        if index not in self._rows or len(shape) == 0:
            return tuple(shape)
        return shape[:-1].numel(), shape[-1]

    def _laid_out(self, index: int, value: Tensor) -> Tensor:
        """The input with its rows as one dimension; copied if it lies in memory as was not verified."""
        if index in self._rows and value.dim() != 2:
            value = value.reshape(self._folded(index, value.shape))
        layouts = self.facts["layouts"]
        aligned = value.storage_offset() * value.element_size() % _ALIGNMENT == 0 or "offset" in layouts
        if aligned and value.is_contiguous():
            return value
        if aligned and index in self.facts["strided"] and name_of(value.shape, value.stride()) in layouts:
            return value
        return value.clone(memory_format=torch.contiguous_format)

    def _warn(self, message: str) -> None:
        warnings.warn(f"{self.facts['operation']}: {message}", RuntimeWarning, stacklevel=2)


def _on_device(device: torch.device) -> Any:
    """Make a GPU the current one, as a launch needs it."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)
