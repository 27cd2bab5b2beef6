"""Operations that are mostly one call: softmax, matrix product, sum."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autokernel.profiling.calls import Call, TensorInfo
from autokernel.profiling.graph import Graph, Match

__all__ = ["Product", "is_last", "matmul", "product_of", "reduce", "softmax"]

_SOFTMAX = frozenset(("_softmax", "softmax", "_safe_softmax"))


def softmax(graph: Graph) -> Iterator[Match]:
    """``_softmax``, and ``exp(x - max) / sum`` written out."""
    for call in graph.calls:
        if call.short in _SOFTMAX:
            x = call.inputs[0]
            last = is_last(call.arguments.get("dim"), x)
            unlike = "" if last else "not over the last dimension"
            yield Match(kind="softmax", calls=(call.index,), inputs={"x": x}, output=call.outputs[0], unlike=unlike)
        elif call.short in ("exp", "exp_"):
            match = _written_out(graph, call)
            if match is not None:
                yield match


def _written_out(graph: Graph, exp: Call) -> Match | None:
    shifted = graph.source(exp.inputs[0])
    if shifted is None or shifted.short not in ("sub", "sub_") or len(shifted.inputs) != 2:
        return None
    x, largest = shifted.inputs
    maximum = graph.source(largest)
    if maximum is None or maximum.short not in ("amax", "max") or graph.root(maximum.inputs[0]) != graph.root(x):
        return None
    total = next((user for user, _ in graph.users(exp.outputs[0]) if user.short == "sum"), None)
    if total is None or not is_last(total.arguments.get("dim"), total.inputs[0]):
        return None
    for user, _ in graph.users(exp.outputs[0]):
        if user.short in ("div", "div_") and graph.source(user.arguments["other"]) is total:
            calls = tuple(sorted({maximum.index, shifted.index, exp.index, total.index, user.index}))
            return Match(kind="softmax", calls=calls, inputs={"x": x}, output=user.outputs[0])
    return None


def is_last(dim: object, x: TensorInfo) -> bool:
    """True if ``dim``, a number or a tuple of one, is the last dimension of ``x``."""
    if isinstance(dim, tuple):
        if len(dim) != 1:
            return False
        dim = dim[0]
    return dim in (-1, len(x.shape) - 1)


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product in one call: ``a[..., M, K] @ b[..., K, N]``, plus ``bias`` if there is one."""

    call: Call
    a: TensorInfo
    b: TensorInfo
    bias: TensorInfo | None = None

    @property
    def output(self) -> TensorInfo:
        return self.call.outputs[0]


_OPERANDS: dict[str, tuple[str, str, str]] = {  # operator -> names of a, b and bias
    "mm": ("self", "mat2", ""),
    "bmm": ("self", "mat2", ""),
    "addmm": ("mat1", "mat2", "self"),
    "addmm_": ("mat1", "mat2", "self"),
    "baddbmm": ("batch1", "batch2", "self"),
    "_addmm_activation": ("mat1", "mat2", "self"),
    "mv": ("self", "vec", ""),
    "dot": ("self", "tensor", ""),
}


def product_of(call: Call | None) -> Product | None:
    """The matrix product that a call is, or None."""
    if call is None:
        return None
    if call.short == "matmul":
        return Product(call, call.arguments["self"], call.arguments["other"])
    if call.short not in _OPERANDS:
        return None
    a, b, bias = _OPERANDS[call.short]
    return Product(call, call.arguments[a], call.arguments[b], call.arguments[bias] if bias else None)


def matmul(graph: Graph) -> Iterator[Match]:
    """Every matrix product that no larger operation has taken; ``B`` is often a transposed weight."""
    for call in graph.calls:
        product = product_of(call)
        if product is not None:
            yield Match(
                kind="matmul",
                calls=(call.index,),
                inputs={"A": product.a, "B": product.b},
                output=product.output,
                details={"bias": True} if product.bias is not None else {},
                unlike=_unlike_matmul(product),
            )


def _unlike_matmul(product: Product) -> str:
    if not product.a.is_float:
        return f"operands of {product.a.dtype}"
    if len(product.a.shape) == len(product.b.shape) == 2:
        return ""
    return "a batch of matrices" if len(product.a.shape) > 2 else "a vector operand"


def reduce(graph: Graph) -> Iterator[Match]:
    """Sums of floating-point numbers."""
    for call in graph.calls:
        if call.short != "sum" or not call.inputs[0].is_float or not call.inputs[0].shape:
            continue
        x = call.inputs[0]
        last = is_last(call.arguments.get("dim"), x)
        unlike = "" if last else "not over the last dimension alone"
        yield Match(kind="reduce", calls=(call.index,), inputs={"x": x}, output=call.outputs[0], unlike=unlike)
