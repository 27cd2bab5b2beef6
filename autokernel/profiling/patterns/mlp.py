"""The gated feed-forward block: ``(act(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T``, with gate and up apart or in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autokernel.profiling.calls import Call, TensorInfo
from autokernel.profiling.graph import Graph, Match, constant_of, dropout_rate
from autokernel.profiling.patterns.single import Product, product_of

__all__ = ["fused_mlp"]

_POINTWISE = frozenset(
    (
        *("silu", "gelu", "relu", "sigmoid", "tanh", "erf", "exp", "neg", "reciprocal", "pow"),
        *("mul", "add", "sub", "div", "rsub", "mul_", "add_", "clamp", "clamp_min", "silu_", "relu_"),
    )
)
_COVERED = ("silu", "gelu", "relu")


@dataclasses.dataclass
class _Gate:
    """One factor of the hidden layer, followed up to the product that made it."""

    product: Product
    seen: TensorInfo
    calls: list[Call]

    @property
    def activation(self) -> str:
        """The function by the operators in it; "" if there are none."""
        names = {call.short.rstrip("_") for call in self.calls if call.short in _POINTWISE}
        if not names:
            return ""
        if "gelu" in names:
            tanh = any(call.arguments.get("approximate") == "tanh" for call in self.calls if call.short == "gelu")
            return "gelu_tanh" if tanh else "gelu"
        for name, marker in (("silu", "silu"), ("relu", "relu"), ("gelu_tanh", "tanh"), ("gelu", "erf")):
            if marker in names:
                return "relu_squared" if name == "relu" and "pow" in names else name
        if "sigmoid" in names:
            return self._of_sigmoid()
        return "+".join(sorted(names))

    def _of_sigmoid(self) -> str:
        factors = [constant_of(call.arguments.get("other")) for call in self.calls if call.short == "mul"]
        if any(factor not in (None, 1.0) for factor in factors):
            return "quick_gelu"
        products = [call for call in self.calls if call.short in ("mul", "mul_")]
        return "silu" if products else "sigmoid"


def fused_mlp(graph: Graph) -> Iterator[Match]:
    """All matches of ``fused_mlp``."""
    for call in graph.calls:
        if call.short in ("mul", "mul_") and len(call.inputs) == 2:
            match = _at(graph, call)
            if match is not None:
                yield match


def _at(graph: Graph, hidden: Call) -> Match | None:
    left, right = (_follow(graph, tensor) for tensor in hidden.inputs)
    if left is None or right is None or bool(left.activation) == bool(right.activation):
        return None
    gate, up = (left, right) if left.activation else (right, left)
    if graph.root(gate.product.a) != graph.root(up.product.a):
        return None
    if gate.product.call is up.product.call and graph.same_data(gate.seen, up.seen):
        return None  # x * sigmoid(x): an activation, not a gate
    down = _down(graph, hidden)
    if down is None:
        return None
    product, passed = down
    calls = [gate.product.call, up.product.call, *gate.calls, *up.calls, hidden, *passed, product.call]
    biased = any(one.bias is not None for one in (gate.product, up.product, product))
    joint = gate.product.call is up.product.call
    dropout = dropout_rate(passed) > 0
    return Match(
        kind="fused_mlp",
        calls=tuple(sorted({call.index for call in calls})),
        inputs={"x": gate.product.a, "w_gate": gate.product.b, "w_up": up.product.b, "w_down": product.b},
        output=product.output,
        options={"activation": gate.activation},
        details={"joint_gate_up": True} if joint else {},
        unlike=_unlike(gate.activation, biased, dropout),
    )


def _unlike(activation: str, biased: bool, dropout: bool) -> str:
    if activation not in _COVERED:
        return f"the activation {activation}"
    if biased:
        return "with a bias"
    return "dropout of the hidden layer" if dropout else ""


def _follow(graph: Graph, tensor: TensorInfo) -> _Gate | None:
    """Follow a factor up through casts and pointwise calls to the single matrix product that it depends on."""
    calls: dict[int, Call] = {}
    product: Product | None = None
    seen = tensor
    pending = [tensor]
    while pending:
        one = pending.pop()
        _, call, casts = graph.trace(one, casts=True)
        calls |= {cast.index: cast for cast in casts}
        if call is None:
            return None
        found = product_of(call)
        if found is not None:
            if product is not None and product.call is not call:
                return None
            product, seen = found, one
        elif call.short in _POINTWISE:
            if call.index not in calls:
                calls[call.index] = call
                pending += call.inputs
        else:
            return None
        if len(calls) > 24:
            return None
    return None if product is None else _Gate(product, seen, list(calls.values()))


def _down(graph: Graph, hidden: Call) -> tuple[Product, list[Call]] | None:
    for user, passed in graph.users(hidden.outputs[0], casts=True, dropout=True):
        product = product_of(user)
        if product is not None and graph.root(product.a) is not None:
            return product, passed
    return None
