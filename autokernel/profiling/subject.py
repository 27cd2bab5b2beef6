"""What is profiled: a model with its inputs, run as often as needed and left as it was.

Each pass gets fresh copies of the input tensors and the same random seed, so that a model which changes
its inputs, or drops at random, does the same work each time.  Buffers, gradients, training mode and the
random generators are put back afterwards.  What the model keeps elsewhere (a cache in a Python list) is
its own affair.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from autokernel.errors import ModelFailed, UsageError

__all__ = ["Subject"]

_SEED = 20
Loss = Callable[[Any], Tensor]


class Subject:
    """A model (or any callable) with the arguments of one call.

    Args:
        model: A module, or a function of tensors.
        inputs: One tensor, a sequence of positional arguments, or a mapping of keyword arguments.
        backward: Each pass also computes gradients.
        loss: Makes the scalar to differentiate out of the model's output.
        train: Training or evaluation mode; None leaves the model as it is.

    Raises:
        UsageError: Something cannot be run as it is given.
    """

    def __init__(
        self, model: Any, inputs: Any, *, backward: bool = False, loss: Loss | None = None, train: bool | None = None
    ) -> None:
        if not callable(model):
            raise UsageError(f"cannot profile a {type(model).__name__}; pass an nn.Module or a function of tensors")
        if hasattr(model, "_orig_mod"):
            raise UsageError(
                "the model is compiled, so its operators are hidden in generated kernels; "
                "profile the module that was compiled (model._orig_mod)"
            )
        if loss is not None and not backward:
            raise UsageError("a loss is only used for a backward pass; pass backward=True, or leave it out")
        self.model = model
        self.args, self.kwargs = _arguments(inputs)
        self.backward, self.train = backward, train
        self._loss = loss
        self.changes_inputs = False
        self.device = self._check_devices()

    @property
    def module(self) -> nn.Module | None:
        return self.model if isinstance(self.model, nn.Module) else None

    @property
    def name(self) -> str:
        """The class of the module, or the name of the function."""
        return type(self.model).__name__ if self.module else getattr(self.model, "__name__", type(self.model).__name__)

    def tensors(self) -> list[Tensor]:
        """The input tensors, in order."""
        return [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    def _check_devices(self) -> torch.device:
        weights = [] if self.module is None else [*self.module.parameters(), *self.module.buffers()]
        inputs = self.tensors()
        if any(tensor.device.type == "meta" for tensor in (*weights, *inputs)):
            raise UsageError(
                "the model or an input is on the meta device and holds no numbers, so it cannot run; "
                "make it real first: model.to_empty(device=...) and initialise it"
            )
        of_weights, of_inputs = {one.device.type for one in weights}, {one.device.type for one in inputs}
        kinds = of_weights or of_inputs or {"cpu"}
        if len(kinds) == 1 and of_inputs - kinds and "cpu" not in kinds:
            raise UsageError(
                f"the model is on {next(iter(kinds))} and inputs are on {', '.join(sorted(of_inputs))}; "
                "move them to one device"
            )
        gpu = [one.device for one in (*weights, *inputs) if one.device.type == "cuda"]
        return gpu[0] if gpu else torch.device("cpu")

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Run passes in the block; afterwards the model is as it was."""
        module = self.module
        modes = {} if module is None else {one: one.training for one in module.modules()}
        buffers = {} if module is None else {one: one.detach().clone() for one in module.buffers()}
        grads = {} if module is None else {one: one.grad for one in module.parameters()}
        devices = [self.device.index or 0] if self.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices=devices):
                if module is not None and self.train is not None:
                    module.train(self.train)
                yield
        finally:
            for one, training in modes.items():
                one.training = training
            with torch.no_grad():
                for buffer, value in buffers.items():
                    if buffer.shape == value.shape:
                        buffer.copy_(value)
            for parameter, grad in grads.items():
                parameter.grad = grad

    def prepare(self) -> Callable[[], Any]:
        """Return the next pass: a function without arguments that runs the model once.

        Raises:
            ModelFailed: (the returned function) the model raised, or there was not enough memory.
        """
        if self.module is not None and self.backward:
            for parameter in self.module.parameters():
                parameter.grad = None
        args, kwargs = pytree.tree_map_only(Tensor, _fresh, (self.args, self.kwargs))
        torch.manual_seed(_SEED)
        copies = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        versions = [_version(copy) for copy in copies]

        def run() -> Any:
            try:
                output = self._run(args, kwargs)
            except Exception as error:
                raise self._explained(error) from error
            self.changes_inputs |= versions != [_version(copy) for copy in copies]
            return output

        return run

    def _run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with torch.set_grad_enabled(self.backward):
            output = self.model(*args, **kwargs)
            if self.backward:
                self._scalar(output).backward()
        return output

    def _scalar(self, output: Any) -> Tensor:
        """What is differentiated: the given loss; the output's own loss; or the sum of the means of its tensors."""
        value: Any
        if self._loss is not None:
            value = self._loss(output)
        else:
            value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if not isinstance(value, Tensor):
            leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
            terms = [leaf.float().mean() for leaf in leaves if leaf.is_floating_point() and leaf.requires_grad]
            if not terms:
                raise UsageError("nothing in the model's output requires a gradient; profile it without backward")
            value = torch.stack(terms).sum()
        if value.numel() != 1:
            raise UsageError(f"the loss has the shape {tuple(value.shape)}; return a scalar")
        assert isinstance(value, Tensor)
        return value

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, UsageError):
            return error
        where = self._place_of(error)
        first = (str(error).strip().splitlines() or [""])[0]
        if _is_out_of_memory(error):
            return ModelFailed(
                f"not enough memory on {self.device}{where}: {first}; use smaller inputs or a lower dtype"
            )
        given = ", ".join(f"{tuple(one.shape)} {str(one.dtype).removeprefix('torch.')}" for one in self.tensors())
        return ModelFailed(
            f"{self.name} failed{where} with inputs {given or 'of no tensor'}: {type(error).__name__}: {first}; "
            "check that the model runs on these inputs by itself"
        )

    def _place_of(self, error: Exception) -> str:
        """The innermost module in whose forward the error was raised, and the line: `` in layers.3.mlp (m.py:12)``."""
        names = {} if self.module is None else {id(one): path for path, one in self.module.named_modules()}
        path, line = "", ""
        for frame, number in traceback.walk_tb(error.__traceback__):
            owner = frame.f_locals.get("self")
            if id(owner) in names and frame.f_code.co_name == "forward":
                path = names[id(owner)] or path
                line = f"{frame.f_code.co_filename.rpartition('/')[2]}:{number}"
        return f" in {path or 'forward'} ({line})" if line else ""


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (list, tuple)):
        return tuple(inputs), {}
    raise UsageError(
        f"inputs is a {type(inputs).__name__}; pass a tensor, a tuple of arguments, or a dict of keyword arguments"
    )


def _fresh(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def _is_out_of_memory(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in text or "not enough memory" in text)
    )
