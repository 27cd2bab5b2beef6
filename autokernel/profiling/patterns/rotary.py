"""Rotary embedding in the ways that it is written: rotate-half, interleaved pairs, complex numbers.

Styles: ``half`` turns the pairs ``(i, i + D/2)``, ``interleaved`` the pairs ``(2i, 2i + 1)``.
"""

from __future__ import annotations

from collections.abc import Iterator

from autokernel.profiling.calls import Call, TensorInfo
from autokernel.profiling.graph import Graph, Match
from autokernel.profiling.strides import by_heads
from autokernel.profiling.targets import Layout

__all__ = ["rotary_embedding"]

_MUL, _ADD, _SUB = ("mul", "mul_"), ("add", "add_"), ("sub", "sub_")


def rotary_embedding(graph: Graph) -> Iterator[Match]:
    """All matches of ``rotary_embedding``."""
    for call in graph.calls:
        match = None
        if call.short in ("cat", "stack"):
            match = _turned(graph, call) or _paired(graph, call)
        elif call.short in _MUL and call.outputs[0].dtype.startswith("complex"):
            match = _complex(graph, call)
        if match is not None:
            yield match


def _turned(graph: Graph, joined: Call) -> Match | None:
    """``x * cos + turned(x) * sin``, where ``turned(x)`` joins ``-x2`` and ``x1``."""
    parts = joined.arguments["tensors"]
    negated = graph.source(parts[0]) if len(parts) == 2 else None
    if negated is None or negated.short != "neg":
        return None
    x = _whole(graph, negated.inputs[0])
    if x is None or graph.root(x) != graph.root(parts[1]):
        return None
    for by_sin, passed in graph.users(joined.outputs[0], casts=True):
        if by_sin.short not in _MUL or len(by_sin.inputs) != 2:
            continue
        for total, more in graph.users(by_sin.outputs[0], casts=True):
            by_cos = _other_term(graph, total, by_sin)
            if by_cos is None or not any(graph.same_data(x, one) for one in by_cos.inputs):
                continue
            calls = [joined, negated, by_sin, by_cos, total, *passed, *more]
            sin = _not_of(graph, by_sin, joined.outputs[0])
            cos = next((one for one in by_cos.inputs if not graph.same_data(x, one)), by_cos.inputs[1])
            return _match(graph, calls, x, cos, sin, total.outputs[0], _style(joined))
    return None


def _style(joined: Call) -> str:
    return "interleaved" if joined.short == "stack" else "half"


def _other_term(graph: Graph, total: Call, by_sin: Call) -> Call | None:
    if total.short not in _ADD or len(total.inputs) != 2:
        return None
    for tensor in total.inputs:
        call = graph.source(tensor, casts=True)
        if call is not None and call is not by_sin and call.short in _MUL and len(call.inputs) == 2:
            return call
    return None


def _not_of(graph: Graph, call: Call, known: TensorInfo) -> TensorInfo:
    left, right = call.inputs
    return right if graph.root(left) == graph.root(known) else left


def _paired(graph: Graph, joined: Call) -> Match | None:
    """``(x1 * cos - x2 * sin, x1 * sin + x2 * cos)`` joined."""
    parts = joined.arguments["tensors"]
    if len(parts) != 2:
        return None
    first, second = graph.source(parts[0], casts=True), graph.source(parts[1], casts=True)
    if first is None or second is None or first.short not in _SUB or second.short not in _ADD:
        return None
    products = [graph.source(one, casts=True) for half in (first, second) for one in half.inputs]
    if len(products) != 4 or any(one is None or one.short not in _MUL or len(one.inputs) != 2 for one in products):
        return None
    terms = [one for one in products if one is not None]
    x1, cos = _split_term(graph, terms[0], terms[2:])
    x2, sin = _split_term(graph, terms[1], terms[2:])
    x = _whole(graph, x1)
    if x is None or graph.root(x1) != graph.root(x2) or graph.root(x1) == graph.root(cos):
        return None
    return _match(graph, [*terms, first, second, joined], x, cos, sin, joined.outputs[0], _slicing(graph, x1))


def _split_term(graph: Graph, term: Call, others: list[Call]) -> tuple[TensorInfo, TensorInfo]:
    """The part of x and the table in a product: x is the operand that is a slice of a larger tensor."""
    left, right = term.inputs
    return (left, right) if _whole(graph, left) is not None and not left.parameter else (right, left)


def _whole(graph: Graph, part: TensorInfo) -> TensorInfo | None:
    """The tensor that a half, or every other column, was taken from."""
    tensor = part
    for _ in range(6):
        call = graph.maker(tensor)
        if call is None or not call.inputs:
            return None
        above = call.inputs[0]
        halves = above.shape and call.short in ("slice", "split", "chunk", "select", "unbind", "split_with_sizes")
        if halves and call.is_view and above.numel == 2 * part.numel:
            return _unpaired(graph, above)
        if not call.is_view and call.short not in ("_to_copy", "clone"):
            return None
        tensor = above
    return None


def _unpaired(graph: Graph, above: TensorInfo) -> TensorInfo:
    """``[..., D/2, 2]`` as the ``[..., D]`` that it is a view of."""
    call = graph.maker(above)
    joined = call is not None and call.is_view and call.inputs and call.inputs[0].numel == above.numel
    if above.shape[-1] == 2 and joined and call is not None:
        return call.inputs[0]
    return above


def _slicing(graph: Graph, part: TensorInfo) -> str:
    call = graph.maker(part)
    while call is not None and call.inputs:
        if call.short == "slice":
            return "interleaved" if call.arguments.get("step") == 2 else "half"
        if call.short in ("select", "unbind"):
            return "interleaved" if call.inputs[0].shape[-1] == 2 else "half"
        if call.short in ("split", "chunk"):
            return "half"
        call = graph.maker(call.inputs[0])
    return "half"


def _complex(graph: Graph, product: Call) -> Match | None:
    """Pairs as complex numbers, multiplied by ``cos + i sin``."""
    made_here = [graph.maker(one) for one in product.inputs]
    for tensor, call in zip(product.inputs, made_here, strict=True):
        if call is None or call.short != "view_as_complex":
            continue
        x, _, casts = graph.trace(tensor, casts=False)[0], None, graph.trace(tensor, casts=True)[2]
        turn = next((one for one in product.inputs if one is not tensor), tensor)
        if x is None or turn is tensor or graph.root(turn) == graph.root(tensor):
            continue
        source = casts[0].inputs[0] if casts else x
        whole = graph.with_ndim(source, 4) or source
        return _match(graph, [*casts, product], whole, turn, turn, product.outputs[0], "interleaved")
    return None


def _match(
    graph: Graph, calls: list[Call], x: TensorInfo, cos: TensorInfo, sin: TensorInfo, output: TensorInfo, style: str
) -> Match:
    user = graph.only_user(output)
    if user is not None and user.short == "_to_copy":
        calls = [*calls, user]
        output = user.outputs[0]
    return Match(
        kind="rotary_embedding",
        calls=tuple(sorted({call.index for call in calls})),
        inputs={"x": x, "cos": cos, "sin": sin},
        output=output,
        options={} if style == "interleaved" else {"interleaved": False},
        details={"style": style},
        unlike=_unlike(x, cos),
    )


def _unlike(x: TensorInfo, cos: TensorInfo) -> str:
    if len(x.shape) != 4:
        return f"{len(x.shape)} dimensions"
    layout = Layout(x.shape, x.stride, x.dtype)
    if by_heads(layout, cos.shape, cos.stride) is None:
        return f"a table of {'x'.join(map(str, cos.shape))} for {'x'.join(map(str, x.shape))}"
    return "" if cos.shape[-1] in (x.shape[-1], x.shape[-1] // 2) else "a table of another width"
