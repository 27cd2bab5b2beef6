"""Modules that compute an operation out of many functions, recognised by what they compute.

A class name proves nothing.  A module whose parameters could be those of the operation is tried: a
float64 copy of it must give what the operation's float64 reference gives, on a part of the model's
own input and on changed ones (small, large, shifted) that tell a different ``eps``, offset or
activation apart.  This covers the RMSNorm classes of language models, with weights that are added
to 1 too, and gated MLPs with separate or joined gate and up projections.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from autokernel import ops
from autokernel.integration.functions import row_request
from autokernel.integration.requests import Request
from autokernel.ops.fused_mlp import ACTIVATIONS

__all__ = ["Composite", "GatedMLP", "RMSNorm", "recognise"]

_ROWS = 16
_AGREEMENT = 1e-5  # relative; modules that compute in float32 whatever they are given stay far below it
_EPS = (1e-5, 1e-6, 1e-8, 1e-12)


@dataclasses.dataclass(frozen=True)
class Composite:
    """How a recognised module is read as a call of an operation.

    Attributes:
        training: The values of ``module.training`` for which it computes the operation.
    """

    training: frozenset[bool] = frozenset((True, False))

    def read(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Request | str:
        """The module's call as a `Request`."""
        values = [*args, *kwargs.values()]
        if len(values) != 1 or not isinstance(values[0], Tensor):
            return "more than one argument"
        if module.training not in self.training:
            return "another mode (train or eval) than it was recognised in"
        if values[0].dim() == 0 or values[0].numel() == 0:
            return "an empty tensor or a number"
        return self.request(module, values[0])

    def request(self, module: Any, x: Tensor) -> Request | str:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class RMSNorm(Composite):
    """``x / rms(x) * weight``, or ``* (1 + weight)``; ``eps`` is an attribute's name or a number."""

    eps: str | float = 1e-6
    offset: bool = False
    weight: str = "weight"

    def request(self, module: Any, x: Tensor) -> Request | str:
        weight = getattr(module, self.weight)
        eps = getattr(module, self.eps) if isinstance(self.eps, str) else self.eps
        return row_request("rmsnorm", x, 1 + weight if self.offset else weight, eps=float(eps))


@dataclasses.dataclass(frozen=True)
class GatedMLP(Composite):
    """``(act(x @ gate.T) * (x @ up.T)) @ down.T`` of Linear children without bias.

    Attributes:
        gate, up, down: Names of the children; ``gate`` and ``up`` are equal if one projection holds both.
        halves: For a joined projection, which half is the gate: 0 or 1.
        activation: ``silu``, ``gelu`` or ``relu``.
    """

    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    halves: int = 0
    activation: str = "silu"

    def weights(self, module: Any) -> tuple[Tensor, Tensor, Tensor]:
        children = module._modules
        gate, up, down = (children[name].weight for name in (self.gate, self.up, self.down))
        if self.gate == self.up:
            half = gate.shape[0] // 2
            parts = (gate[:half], gate[half:])
            gate, up = parts[self.halves], parts[1 - self.halves]
        return gate, up, down

    def request(self, module: Any, x: Tensor) -> Request | str:
        gate, up, down = self.weights(module)
        if x.shape[-1] != gate.shape[1]:
            return "an input of another width"
        rows = x.reshape(-1, x.shape[-1])
        sizes = (("F", gate.shape[0]), ("K", gate.shape[1]), ("M", rows.shape[0]), ("N", down.shape[0]))
        options = (("activation", self.activation),)
        return Request("fused_mlp", (rows, gate, up, down), options, sizes, (*x.shape[:-1], down.shape[0]), x.dtype)


def recognise(
    module: nn.Module, x: Tensor, operations: Sequence[str], hooked: Collection[nn.Module] = ()
) -> Composite | None:
    """Find out which of the operations the module computes, if any.

    Args:
        module: Not changed; it is copied.
        x: A real input, ``[..., N]``.
        operations: ``rmsnorm`` and ``fused_mlp`` are looked for.
        hooked: Modules whose hooks (an adapter's, say) a kernel in their parent's place would pass over.
    """
    if x.dim() == 0 or not x.is_floating_point() or x.numel() == 0:
        return None
    forms = [] if any(child in hooked for child in module.children()) else list(_forms(module, x, operations))
    if not forms:
        return None
    try:
        wide = _wide_copy(module)
    except Exception:  # what cannot be copied cannot be tried
        return None
    probes = _probes(x)
    for form in forms:
        modes = frozenset(training for training in (True, False) if _agrees(form, wide.train(training), probes))
        if modes:
            return dataclasses.replace(form, training=modes)
    return None


def _forms(module: nn.Module, x: Tensor, operations: Sequence[str]) -> Iterator[Composite]:
    """What the module's parameters allow it to be."""
    if "rmsnorm" in operations:
        yield from _norm_forms(module, x)
    if "fused_mlp" in operations:
        yield from _mlp_forms(module, x)


def _norm_forms(module: nn.Module, x: Tensor) -> Iterator[Composite]:
    own = {name: value for name, value in module._parameters.items() if value is not None}
    if len(own) != 1 or any(module._modules.values()):
        return
    (name, weight), = own.items()  # fmt: skip
    if weight.shape != x.shape[-1:]:
        return
    named = [key for key, value in vars(module).items() if isinstance(value, float) and 0 < value < 0.1]
    for offset in (False, True):
        choices: list[str | float] = [*named, *_EPS]
        for eps in choices:
            yield RMSNorm(eps=eps, offset=offset, weight=name)


def _mlp_forms(module: nn.Module, x: Tensor) -> Iterator[Composite]:
    if any(value is not None for value in module._parameters.values()):
        return
    linears: dict[str, Any] = {name: child for name, child in module.named_children() if _is_plain_linear(child)}
    shapes = {name: tuple(child.weight.shape) for name, child in linears.items()}
    if len(linears) != len([child for child in module._modules.values() if _has_parameters(child)]):
        return
    width = x.shape[-1]
    for activation in ACTIVATIONS:
        for down, (_n, hidden) in shapes.items():
            inner = [name for name, shape in shapes.items() if name != down]
            if len(inner) == 2 and all(shapes[name] == (hidden, width) for name in inner):
                yield GatedMLP(gate=inner[0], up=inner[1], down=down, activation=activation)
                yield GatedMLP(gate=inner[1], up=inner[0], down=down, activation=activation)
            if len(inner) == 1 and shapes[inner[0]] == (2 * hidden, width):
                for half in (0, 1):
                    yield GatedMLP(gate=inner[0], up=inner[0], down=down, halves=half, activation=activation)


def _has_parameters(child: nn.Module | None) -> bool:
    return child is not None and next(child.parameters(), None) is not None


def _is_plain_linear(child: nn.Module) -> bool:
    if type(child).forward is not nn.Linear.forward or "forward" in vars(child):
        return False
    return child.bias is None


def _wide_copy(module: nn.Module) -> nn.Module:
    """A float64 copy that computes alone: no hooks, no gradients."""
    wide = copy.deepcopy(module).double().requires_grad_(False)
    for one in wide.modules():
        one._forward_hooks.clear()
        one._forward_pre_hooks.clear()
    return wide


def _probes(x: Tensor) -> list[Tensor]:
    """A few rows of a real input, as they are, small, large and shifted; float64."""
    rows = x.detach().reshape(-1, x.shape[-1])[:_ROWS].double()
    rows = rows.reshape(*[1] * (x.dim() - 2), *rows.shape) if x.dim() > 2 else rows
    scale = rows.square().mean().sqrt().clamp(min=1e-12)
    return [rows, rows * (1e-3 / scale), rows * (3.0 / scale), rows * (1.0 / scale) + 1.0]


def _agrees(form: Composite, wide: nn.Module, probes: Sequence[Tensor]) -> bool:
    for x in probes:
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                actual = wide.forward(x.clone())
            request = form.read(wide, (x,), {})
        except Exception:
            return False
        if isinstance(request, str) or not isinstance(actual, Tensor) or actual.shape != request.shape:
            return False
        expected = ops.get(request.operation).reference(*request.inputs, **dict(request.options))
        error = (actual.double() - expected.reshape(request.shape)).norm()
        if not bool(error <= _AGREEMENT * expected.norm()):
            return False
    return True
