"""Sizes by the names that a shipped operation gives them, from the tensors of a match.

Only what the shipped operation computes has a case; for anything else the reason is given, and the
group can be made a target as a captured module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from autokernel.ops.spec import DTYPES
from autokernel.profiling.calls import TensorInfo
from autokernel.profiling.graph import Match
from autokernel.profiling.strides import by_heads
from autokernel.profiling.targets import Layout

__all__ = ["case_of", "flops_of_call", "main_dtype"]

Inputs = Mapping[str, TensorInfo]
_MAIN = {"matmul": "A", "flash_attention": "Q", "cross_entropy": "logits"}  # others: x


def main_dtype(match: Match) -> str:
    """Dtype that a kernel works in: of the operation's first input; of a rotation the wider of x and table."""
    dtype = match.inputs[_MAIN.get(match.kind, "x")].dtype
    if match.kind == "rotary_embedding" and match.inputs["cos"].is_float and match.inputs["x"].is_float:
        table = match.inputs["cos"].dtype
        wide = torch.promote_types(getattr(torch, dtype), getattr(torch, table))
        return str(wide).removeprefix("torch.")
    return dtype


def case_of(match: Match) -> tuple[dict[str, int] | None, str]:
    """The sizes of a match, and "" or the reason why the shipped operation does not cover it.

    Sizes are given where they have a meaning, even if the operation is not covered for another reason.
    """
    reason = match.unlike
    if main_dtype(match) not in DTYPES:
        reason = reason or f"in {main_dtype(match)}"
    try:
        sizes = _SIZES[match.kind](match)
    except (IndexError, KeyError):
        return None, reason or "its shapes have no counterpart in the shipped operation"
    if not sizes:
        return None, reason or "its shapes have no counterpart in the shipped operation"
    if any(size < 1 for size in sizes.values()):
        return None, reason or "an empty tensor"
    return sizes, reason


def _rows(match: Match) -> dict[str, int]:
    x = match.inputs["x"]
    return {"M": x.numel // x.shape[-1] if x.shape[-1] else 0, "N": x.shape[-1]}


def _matmul(match: Match) -> dict[str, int]:
    a, b = match.inputs["A"], match.inputs["B"]
    if len(a.shape) > 2 or len(b.shape) > 2:
        return {"B": a.shape[0], "M": a.shape[-2], "N": b.shape[-1], "K": a.shape[-1]}
    return {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}


def _attention(match: Match) -> dict[str, int]:
    batch, heads, queries, width = match.inputs["Q"].shape
    return {"B": batch, "H": heads, "S": queries, "D": width}


def _mlp(match: Match) -> dict[str, int]:
    x, gate, down = match.inputs["x"], match.inputs["w_gate"], match.inputs["w_down"]
    hidden = gate.shape[1] // (2 if match.details.get("joint_gate_up") else 1)
    return {"M": x.numel // x.shape[-1], "K": x.shape[-1], "F": hidden, "N": down.shape[1]}


def _loss(match: Match) -> dict[str, int]:
    rows, classes = match.inputs["logits"].shape
    return {"N": rows, "V": classes}


def _rotary(match: Match) -> dict[str, int]:
    x, cos = match.inputs["x"], match.inputs["cos"]
    turned = by_heads(Layout(x.shape, x.stride, x.dtype), cos.shape, cos.stride)
    shape = x.shape if turned is None else turned.shape
    return dict(zip("BHSD", shape, strict=True)) if len(shape) == 4 else {}


_SIZES: dict[str, Callable[[Match], dict[str, int]]] = {
    "matmul": _matmul,
    "flash_attention": _attention,
    "fused_mlp": _mlp,
    "cross_entropy": _loss,
    "rotary_embedding": _rotary,
    "softmax": _rows,
    "reduce": _rows,
    "layernorm": _rows,
    "rmsnorm": _rows,
}

_CONVOLUTIONS = ("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution", "conv2d", "conv1d")


def flops_of_call(name: str, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]) -> float:
    """FLOP of one operator call where products dominate it: matrix products and convolutions; 0 for all others."""
    if not outputs:
        return 0.0
    if name in ("mm", "bmm", "matmul") and len(inputs) >= 2:
        return 2.0 * outputs[0].numel * inputs[0].shape[-1]
    if name in ("addmm", "baddbmm", "_addmm_activation") and len(inputs) >= 3:
        return 2.0 * outputs[0].numel * inputs[1].shape[-1]
    if name in _CONVOLUTIONS and len(inputs) >= 2:
        per_output = inputs[1].numel // max(inputs[1].shape[0], 1)
        return 2.0 * outputs[0].numel * per_output
    if name.startswith("_scaled_dot_product") and len(inputs) >= 3:
        q, k = inputs[0], inputs[1]
        return 4.0 * q.numel * k.shape[-2]
    return 0.0
