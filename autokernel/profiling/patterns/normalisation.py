"""Layer and root-mean-square normalisation: the operators of that name, and both written out.

Written out, the anchor is the inverse root; above it stands the mean of squares of ``x`` (RMS) or of
``x - mean(x)`` (layer), below it the product with the same, then perhaps the weight and the bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autokernel.profiling.calls import Call, TensorInfo
from autokernel.profiling.graph import Graph, Match, constant_of
from autokernel.profiling.patterns.single import is_last

__all__ = ["normalisation"]

_MUL, _ADD, _SUB, _DIV = ("mul", "mul_"), ("add", "add_"), ("sub", "sub_"), ("div", "div_")


def normalisation(graph: Graph) -> Iterator[Match]:
    """All matches of ``layernorm`` and ``rmsnorm``."""
    for call in graph.calls:
        if call.short in ("native_layer_norm", "layer_norm"):
            yield _layer_norm(call)
        elif call.short in ("_fused_rms_norm", "rms_norm"):
            yield _rms_norm(call)
        else:
            match = _written_out(graph, call)
            if match is not None:
                yield match


def _layer_norm(call: Call) -> Match:
    x, weight, bias = (call.arguments.get(name) for name in ("input", "weight", "bias"))
    assert isinstance(x, TensorInfo)
    missing = "" if weight is not None and bias is not None else "without weight or bias"
    sizes = call.arguments.get("normalized_shape") or ()
    inputs = {"x": x, "weight": weight, "bias": bias}
    return Match(
        kind="layernorm",
        calls=(call.index,),
        inputs={name: tensor for name, tensor in inputs.items() if isinstance(tensor, TensorInfo)},
        output=call.outputs[0],
        options={"eps": float(call.arguments["eps"])},
        unlike="over several dimensions" if len(sizes) > 1 else missing,
    )


def _rms_norm(call: Call) -> Match:
    x, weight = call.arguments["input"], call.arguments.get("weight")
    eps = constant_of(call.arguments.get("eps"))
    return Match(
        kind="rmsnorm",
        calls=(call.index,),
        inputs={"x": x} | ({"weight": weight} if weight is not None else {}),
        output=call.outputs[0],
        options={} if eps is None else {"eps": eps},
        unlike="" if weight is not None else "without weight",
    )


@dataclasses.dataclass
class _Spread:
    """The mean of squares under the root."""

    x: TensorInfo
    centred: TensorInfo | None
    calls: list[Call]
    eps: float


def _written_out(graph: Graph, root: Call) -> Match | None:
    is_power = root.short == "pow" and constant_of(root.arguments.get("exponent")) in (-0.5, 0.5)
    if root.short not in ("rsqrt", "sqrt", "rsqrt_", "sqrt_") and not is_power:
        return None
    spread = _spread(graph, root)
    if spread is None:
        return None
    calls, factor = [*spread.calls, root], root.outputs[0]
    inverse = root.short.startswith("rsqrt") or constant_of(root.arguments.get("exponent")) == -0.5
    if not inverse:
        reciprocal = graph.only_user(factor)
        if reciprocal is not None and reciprocal.short == "reciprocal":
            calls.append(reciprocal)
            factor, inverse = reciprocal.outputs[0], True
    scaled = _scaled(graph, spread, factor, inverse)
    if scaled is None:
        return None
    calls.append(scaled)
    return _with_affine(graph, spread, scaled.outputs[0], calls)


def _spread(graph: Graph, root: Call) -> _Spread | None:
    calls: list[Call] = []
    call, eps = graph.source(root.inputs[0], casts=True), 0.0
    if call is not None and call.short in _ADD:
        constant = constant_of(call.arguments["other"])
        if constant is None:
            return None
        eps = constant
        calls.append(call)
        call = graph.source(call.inputs[0], casts=True)
    if call is None or not call.inputs:
        return None
    calls.append(call)
    if call.short == "var":
        return _of_variance(graph, call, calls, eps)
    if call.short != "mean" or not is_last(call.arguments.get("dim"), call.inputs[0]):
        return None
    square = graph.source(call.inputs[0])
    squared = _squared(graph, square)
    if square is None or squared is None:
        return None
    calls.append(square)
    centring = graph.source(squared, casts=True)
    if centring is not None and _subtracts_mean(graph, centring):
        mean = graph.source(centring.inputs[1], casts=True)
        assert mean is not None
        return _Spread(centring.inputs[0], centring.outputs[0], [*calls, centring, mean], eps)
    x, _, casts = graph.trace(squared, casts=True)
    wide = squared if not casts else casts[-1].inputs[0]
    return None if x is None else _Spread(wide, None, [*calls, *casts], eps)


def _of_variance(graph: Graph, call: Call, calls: list[Call], eps: float) -> _Spread | None:
    """``var(x)``: its difference to the mean is made elsewhere, for the product."""
    x = call.inputs[0]
    if not is_last(call.arguments.get("dim"), x):
        return None
    for user, _ in graph.users(x):
        if user.short in _SUB and _subtracts_mean(graph, user):
            mean = graph.source(user.inputs[1], casts=True)
            assert mean is not None
            return _Spread(x, user.outputs[0], [*calls, user, mean], eps)
    return None


def _squared(graph: Graph, call: Call | None) -> TensorInfo | None:
    """What a call squares, or None."""
    if call is None or not call.inputs:
        return None
    x = call.inputs[0]
    if call.short == "square" or (call.short == "pow" and constant_of(call.arguments["exponent"]) == 2):
        return x
    if call.short == "mul" and len(call.inputs) == 2 and graph.same_data(x, call.inputs[1]):
        return x
    return None


def _subtracts_mean(graph: Graph, call: Call) -> bool:
    if call.short not in _SUB or len(call.inputs) != 2:
        return False
    mean = graph.source(call.inputs[1], casts=True)
    return mean is not None and mean.short == "mean" and graph.root(mean.inputs[0]) == graph.root(call.inputs[0])


def _scaled(graph: Graph, spread: _Spread, factor: TensorInfo, inverse: bool) -> Call | None:
    """The call that multiplies ``x`` (or ``x - mean``) by the inverse root, or divides it by the root."""
    wanted = graph.root(spread.centred if spread.centred is not None else spread.x)
    for user, _ in graph.users(factor, casts=True):
        if user.short in (_MUL if inverse else _DIV) and len(user.inputs) == 2:
            left, right = user.inputs
            one = left if graph.root(right) == graph.root(factor) else right
            if graph.root(one) == wanted:
                return user
    return None


def _with_affine(graph: Graph, spread: _Spread, normed: TensorInfo, calls: list[Call]) -> Match:
    """Follow the result through casts to the product with the weight and the sum with the bias."""
    kind = "rmsnorm" if spread.centred is None else "layernorm"
    details: dict[str, object] = {}
    weight, output, passed = _next_factor(graph, normed, _MUL, spread.x.shape[-1])
    bias = None
    if weight is not None:
        calls += passed
        offset = _offset_weight(graph, weight)
        if offset is not None:
            calls.append(offset)
            details["weight_offset"] = 1.0
            weight = offset.inputs[0]
        if kind == "layernorm":
            bias, after, passed = _next_factor(graph, output, _ADD, spread.x.shape[-1])
            if bias is not None:
                output = after
                calls += passed
    needed = ("weight",) if kind == "rmsnorm" else ("weight", "bias")
    inputs = {"x": spread.x, "weight": weight, "bias": bias}
    given = {name: tensor for name, tensor in inputs.items() if tensor is not None}
    output, trailing = _trailing_cast(graph, output)
    absent = [name for name in needed if name not in given]
    return Match(
        kind=kind,
        calls=tuple(sorted({call.index for call in (*calls, *trailing)})),
        inputs=given,
        output=output,
        options={"eps": _as_written(spread.eps)},
        details=details,
        unlike=f"without {' or '.join(absent)}" if absent else "",
    )


def _as_written(eps: float) -> float:
    """1e-5 for the 9.99999975e-6 that it becomes where PyTorch rounds it to float32."""
    short = float(f"{eps:.6g}")
    return short if abs(short - eps) < 1e-7 * eps else eps


def _next_factor(
    graph: Graph, tensor: TensorInfo, names: tuple[str, ...], size: int
) -> tuple[TensorInfo | None, TensorInfo, list[Call]]:
    """The vector of ``size`` that the tensor is multiplied by (or added to) next; with the result and the calls."""
    for user, passed in graph.users(tensor, casts=True):
        if user.short not in names or len(user.inputs) != 2:
            continue
        left, right = user.inputs
        vector = right if graph.root(left) == graph.root(tensor) else left
        if vector.shape and vector.shape[-1] == size and vector.numel == size:
            base, maker, casts = graph.trace(vector, casts=True)
            own_casts = casts if maker is None and base is not None else []
            return vector, user.outputs[0], [*passed, user, *own_casts]
    return None, tensor, []


def _offset_weight(graph: Graph, weight: TensorInfo) -> Call | None:
    """``1 + weight``, as Gemma has it."""
    call = graph.source(weight, casts=True)
    if call is not None and call.short in _ADD and constant_of(call.arguments["other"]) == 1.0:
        return call
    return None


def _trailing_cast(graph: Graph, output: TensorInfo) -> tuple[TensorInfo, list[Call]]:
    """Take the cast back to the narrow dtype into the operation, if nothing else uses the wide result."""
    user = graph.only_user(output)
    if user is not None and user.short == "_to_copy" and user.outputs[0].dtype != output.dtype:
        return user.outputs[0], [user]
    return output, []
