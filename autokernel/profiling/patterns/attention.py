"""Attention: the operators behind ``scaled_dot_product_attention``, and product, softmax, product written out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from autokernel.profiling.calls import Call, TensorInfo
from autokernel.profiling.graph import Graph, Match, constant_of, dropout_rate
from autokernel.profiling.patterns.single import Product, product_of, softmax

__all__ = ["attention"]

_MUL, _ADD, _DIV = ("mul", "mul_"), ("add", "add_"), ("div", "div_")
_DEPTH = 12  # scale, mask, bias and casts between a product and its softmax


def attention(graph: Graph) -> Iterator[Match]:
    """All matches of ``flash_attention``."""
    for call in graph.calls:
        if call.short.startswith("_scaled_dot_product") and "query" in call.arguments:
            yield _fused(call)
    for soft in softmax(graph):
        match = _written_out(graph, soft)
        if match is not None:
            yield match


def _fused(call: Call) -> Match:
    q, k, v = (call.arguments[name] for name in ("query", "key", "value"))
    mask = call.arguments.get("attn_mask") or call.arguments.get("attn_bias")
    state = _Scores(scale=constant_of(call.arguments.get("scale")), dropout=call.arguments.get("dropout_p") or 0.0)
    state.causal = bool(call.arguments.get("is_causal"))
    if isinstance(mask, TensorInfo):
        state.see_mask(mask)
    return _match((call.index,), q, k, v, call.outputs[0], state)


@dataclasses.dataclass
class _Scores:
    """What happens to the scores between the product and the softmax."""

    scale: float | None = None
    causal: bool = False
    dropout: float = 0.0
    unlike: str = ""
    calls: list[Call] = dataclasses.field(default_factory=list)

    def see_mask(self, mask: TensorInfo) -> None:
        if mask.mask == "causal":
            self.causal = True
        elif mask.mask != "none":
            self.unlike = self.unlike or "a mask or bias other than the causal one"

    def with_calls(self, calls: list[Call]) -> _Scores:
        """A copy that has further calls in it."""
        return dataclasses.replace(self, calls=[*self.calls, *calls])

    def multiply(self, factor: float) -> None:
        self.scale = factor if self.scale is None else self.scale * factor


def _written_out(graph: Graph, soft: Match) -> Match | None:
    state = _Scores()
    scores = _climb(graph, soft.inputs["x"], state, _DEPTH)
    if scores is None or len(scores.a.shape) < 3:
        return None
    below = _descend(graph, soft.output)
    if below is None:
        return None
    product, passed, dropout = below
    state.dropout = dropout
    if state.scale is None:
        state.scale = 1.0
    q, k = _unscaled(graph, scores.a, state), _unscaled(graph, scores.b, state)
    calls = (*(call.index for call in (*state.calls, *passed, scores.call, product.call)), *soft.calls)
    q4, v4 = graph.with_ndim(q, 4) or _as_4d(q), graph.with_ndim(product.b, 4) or _as_4d(product.b)
    k4 = graph.with_ndim(k, 4) or _as_4d(k)
    k4 = dataclasses.replace(k4, shape=(*k4.shape[:2], k4.shape[3], k4.shape[2]), stride=_swapped(k4.stride))
    return _match(tuple(sorted(set(calls))), q4, k4, v4, product.output, state)


def _swapped(stride: tuple[int, ...]) -> tuple[int, ...]:
    return (*stride[:-2], stride[-1], stride[-2]) if len(stride) >= 2 else stride


def _as_4d(tensor: TensorInfo) -> TensorInfo:
    """A batch of matrices as one batch of many heads."""
    return dataclasses.replace(tensor, shape=(1, *tensor.shape[-3:]), stride=(0, *tensor.stride[-3:]))


def _climb(graph: Graph, tensor: Any, state: _Scores, depth: int) -> Product | None:
    """Follow the softmax's input up to the product, noting scale, mask and casts on the way."""
    _, call, casts = graph.trace(tensor, casts=True)
    if call is None or depth == 0:
        return None
    product = product_of(call)
    if product is not None:
        state.calls += casts
        return _with_summand(product, state)
    for above, step in _steps(call, state.with_calls([*casts, call])):
        found = _climb(graph, above, step, depth - 1)
        if found is not None:
            vars(state).update(vars(step))
            return found
    return None


def _with_summand(product: Product, state: _Scores) -> Product:
    """``baddbmm(bias, a, b, beta, alpha)`` scales and adds by itself."""
    arguments = product.call.arguments
    if product.bias is not None:
        state.multiply(constant_of(arguments.get("alpha")) or 1.0)
        if constant_of(arguments.get("beta")) != 0:
            state.unlike = state.unlike or "a mask or bias other than the causal one"
    return product


def _steps(call: Call, state: _Scores) -> list[tuple[Any, _Scores]]:
    """The tensors through which the product may be reached, each with what the call then does to the scores."""
    arguments = call.arguments
    if call.short in (*_MUL, *_DIV):
        factor = constant_of(arguments["other"])
        if factor is None:
            factor = _scalar_tensor(arguments["other"])
        if not factor:
            return []
        state.multiply(factor if call.short in _MUL else 1.0 / factor)
        return [(arguments["self"], state)]
    if call.short in ("masked_fill", "masked_fill_"):
        state.see_mask(arguments["mask"])
        return [(arguments["self"], state)]
    if call.short == "where":
        state.see_mask(arguments["condition"])
        return [(arguments["self"], state), (arguments["other"], state.with_calls([]))]
    if call.short in _ADD and isinstance(arguments["other"], TensorInfo):
        left, right = arguments["self"], arguments["other"]
        swapped = state.with_calls([])
        state.see_mask(right)
        swapped.see_mask(left)
        return [(left, state), (right, swapped)]
    return []


def _scalar_tensor(value: object) -> float | None:
    """A tensor without dimensions scales by a value that the stream does not hold: only its being there is known."""
    return math.nan if isinstance(value, TensorInfo) and value.numel == 1 else None


def _descend(graph: Graph, probabilities: TensorInfo) -> tuple[Product, list[Call], float] | None:
    """Follow the probabilities down, through casts and dropout, to the product with V."""
    for user, passed in graph.users(probabilities, casts=True, dropout=True):
        product = product_of(user)
        if product is not None and graph.root(product.a) is not None and len(product.a.shape) >= 3:
            return product, passed, dropout_rate(passed)
    return None


def _unscaled(graph: Graph, tensor: TensorInfo, state: _Scores) -> TensorInfo:
    """Go above a scaling of Q or K by a number, and take it into the scale."""
    _, call, casts = graph.trace(tensor, casts=True)
    state.calls += [cast for cast in casts if cast.short == "clone"]
    factor = constant_of(call.arguments.get("other")) if call is not None and call.short in (*_MUL, *_DIV) else None
    if call is None or not factor:
        return tensor
    state.calls.append(call)
    state.multiply(factor if call.short in _MUL else 1.0 / factor)
    return tensor


def _match(
    calls: tuple[int, ...], q: TensorInfo, k: TensorInfo, v: TensorInfo, output: TensorInfo, state: _Scores
) -> Match:
    options: dict[str, object] = {"causal": state.causal}
    usual = q.shape[-1] ** -0.5
    if state.scale is not None and not math.isclose(state.scale, usual, rel_tol=1e-4):
        options["sm_scale"] = state.scale
    heads: dict[str, object] = {"kv_heads": k.shape[1]} if len(k.shape) == 4 and k.shape[1] != q.shape[1] else {}
    return Match(
        kind="flash_attention",
        calls=calls,
        inputs={"Q": q, "K": k, "V": v},
        output=output,
        options=options,
        details=heads,
        unlike=state.unlike or _unlike_shapes(q, k, v, state),
    )


def _unlike_shapes(q: TensorInfo, k: TensorInfo, v: TensorInfo, state: _Scores) -> str:
    if state.scale is not None and math.isnan(state.scale):
        return "a scale that is computed"
    if state.dropout:
        return f"dropout of {state.dropout:g}"
    if len(q.shape) != 4:
        return f"{len(q.shape)} dimensions"
    if q.shape[2] != k.shape[2]:
        return f"{q.shape[2]} queries against {k.shape[2]} keys"
    if q.shape[3] != v.shape[3]:
        return f"heads of {q.shape[3]} and values of {v.shape[3]}"
    return ""
