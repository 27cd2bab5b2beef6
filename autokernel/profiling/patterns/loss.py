"""Cross entropy: log-softmax and the loss of its operators, and log-sum-exp minus the chosen logit written out."""

from __future__ import annotations

from collections.abc import Iterator

from autokernel.profiling.calls import Call, TensorInfo
from autokernel.profiling.graph import Graph, Match, constant_of

__all__ = ["cross_entropy"]

_MEAN = 1  # at::Reduction::Mean


def cross_entropy(graph: Graph) -> Iterator[Match]:
    """All matches of ``cross_entropy``."""
    for call in graph.calls:
        if call.short in ("_log_softmax", "log_softmax"):
            match = _of_log_softmax(graph, call)
        elif call.short == "logsumexp":
            match = _of_log_sum(graph, call)
        else:
            continue
        if match is not None:
            yield match


def _of_log_softmax(graph: Graph, call: Call) -> Match | None:
    for user, _ in graph.users(call.outputs[0]):
        if user.short in ("nll_loss_forward", "nll_loss", "nll_loss2d_forward"):
            return _of_nll(graph, call, user)
        if user.short == "gather":
            return _of_gather(graph, call, user, user, [call])
    return None


def _of_nll(graph: Graph, call: Call, loss: Call) -> Match:
    unlike = ""
    if loss.arguments.get("reduction") != _MEAN:
        unlike = "not the mean over the rows"
    elif loss.arguments.get("weight") is not None:
        unlike = "with weights of the classes"
    elif constant_of(loss.arguments.get("ignore_index", -100)) != -100:
        unlike = f"it ignores {loss.arguments['ignore_index']} instead of -100"
    logits, casts = _above(graph, call)
    others = [user for user, _ in graph.users(call.outputs[0]) if user is not loss]
    if others:
        unlike = unlike or "its log-softmax is used elsewhere too (label smoothing, for example)"
    return _match([*casts, call, loss], logits, loss.arguments["target"], loss.outputs[0], unlike)


def _of_log_sum(graph: Graph, call: Call) -> Match | None:
    x = call.inputs[0]
    for user, _ in graph.users(call.outputs[0]):
        if user.short != "sub" or len(user.inputs) != 2:
            continue
        gather = graph.source(user.inputs[1], casts=True)
        if gather is not None and gather.short in ("gather", "index") and graph.root(gather.inputs[0]) == graph.root(x):
            return _of_gather(graph, call, gather, user, [call, gather, user])
    return None


def _of_gather(graph: Graph, call: Call, gather: Call, last: Call, calls: list[Call]) -> Match:
    """From the losses of the rows on: a sign, then the mean, if it is one."""
    calls = [*calls, gather]
    tensor = last.outputs[0]
    unlike = "not the mean over the rows"
    for _ in range(3):
        user = graph.only_user(tensor)
        if user is None or user.short not in ("neg", "mean"):
            break
        calls.append(user)
        tensor = user.outputs[0]
        if user.short == "mean" and not tensor.shape:
            unlike = ""
            break
    logits, casts = _above(graph, call)
    target = gather.arguments.get("index")
    return _match([*calls, *casts], logits, target, tensor, unlike)


def _above(graph: Graph, call: Call) -> tuple[TensorInfo, list[Call]]:
    """The logits before a cast to float32 that only the loss uses."""
    x = call.inputs[0]
    maker = graph.source(x)
    if maker is not None and maker.short == "_to_copy" and graph.only_user(maker.outputs[0]) is call:
        narrow = maker.inputs[0]
        return (narrow if len(narrow.shape) == len(x.shape) else _flattened(narrow, x)), [maker]
    return x, []


def _flattened(narrow: TensorInfo, x: TensorInfo) -> TensorInfo:
    return TensorInfo(
        value=narrow.value, shape=x.shape, stride=x.stride, dtype=narrow.dtype, device=x.device, stored=narrow.stored
    )


def _match(calls: list[Call], logits: TensorInfo, target: object, output: TensorInfo, unlike: str) -> Match:
    if not unlike and len(logits.shape) != 2:
        unlike = f"logits of {len(logits.shape)} dimensions"
    inputs = {"logits": logits}
    if isinstance(target, TensorInfo):
        inputs["targets"] = target
    return Match(
        kind="cross_entropy",
        calls=tuple(sorted({call.index for call in calls})),
        inputs=inputs,
        output=output,
        unlike=unlike,
    )
