"""Scaled dot-product attention, with or without a causal mask.

    O[b, h, i, :] = sum over j of P[i, j] * V[b, h, j, :]
    P[i, :] = softmax over j (j <= i if causal) of sm_scale * dot(Q[b, h, i, :], K[b, h, j, :])

Scores, their softmax and the sums are float32; the probabilities may be rounded to the inputs'
dtype before they meet V, as every fused kernel does.
Source: T. Dao, FlashAttention-2, arXiv 2307.08691, algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]


def reference(Q: Tensor, K: Tensor, V: Tensor, causal: bool = True, sm_scale: float | None = None) -> Tensor:
    """Attention of ``Q``, ``K``, ``V``, each ``[B, H, S, D]``; ``sm_scale`` is ``D**-0.5`` when None."""
    return probabilities(Q, K, causal, sm_scale) @ V


def probabilities(Q: Tensor, K: Tensor, causal: bool, sm_scale: float | None) -> Tensor:
    scores = Q @ K.transpose(-1, -2) * scale_of(Q, sm_scale)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=Q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.softmax(scores, dim=-1)


def scale_of(Q: Tensor, sm_scale: float | None) -> float:
    return float(Q.shape[-1] ** -0.5) if sm_scale is None else sm_scale


def baseline(Q: Tensor, K: Tensor, V: Tensor, causal: bool = True, sm_scale: float | None = None) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=causal, scale=sm_scale)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    sizes = (shape["B"], shape["H"], shape["S"], shape["D"])
    return tuple(normal(sizes, dtype, generator) for _ in range(3))


def magnitude(Q: Tensor, K: Tensor, V: Tensor, causal: bool = True, sm_scale: float | None = None) -> Magnitude:
    # The errors of the scores, 2**-24 * scale * |q| |k| each, become relative errors of the
    # probabilities, independent from key to key: their effect is the root of the sum of the squares
    # of P * V.  By sum(P * |V|) instead, a TF32 product with S = 4096 would pass for float32.
    P = probabilities(Q, K, causal, sm_scale)
    spread = (P.square() @ V.square()).sqrt()
    scores = abs(scale_of(Q, sm_scale)) * (Q.abs() @ K.abs().transpose(-1, -2))
    # Keys that a query gives nothing to do not count.
    largest = torch.where(P > 2.0**-60, scores, 0.0).amax(dim=-1, keepdim=True)
    return Magnitude(accumulated=(P @ V).abs() + spread * (1 + largest), rounded=spread)


def mixed_heads(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The first head tame, each later one with scores fifty times as large: some overflow exp, and all are peaked."""
    Q = inputs[0].double()
    flat = Q.reshape(-1, *Q.shape[-2:]).clone()
    flat[1:] *= 50.0
    return fills.replaced(inputs, 0, flat.reshape(Q.shape))


def needle(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The last half of the queries looks for one key, the second: nearly all of their weight lies far back."""
    Q, K, V = (value.clone() for value in inputs)
    S, D = Q.shape[-2:]
    direction = torch.sign(Q[..., :1, :]) + (Q[..., :1, :] == 0)
    Q[..., S // 2 :, :] = direction
    key = min(1, S - 1)
    K[..., key : key + 1, :] = (direction.double() * (24.0 * D**-0.5)).to(K.dtype)  # a score of 24 at the default scale
    return Q, K, V


def opposed(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Every score far below zero: a maximum that starts at 0, or a padding key of score 0, takes all the weight."""
    inputs = fills.replaced(inputs, 0, 3.0 * inputs[0].double().abs() + 3.0)
    return fills.replaced(inputs, 1, -inputs[1].double().abs() - 3.0)


def rising(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Scores that grow with the key's position: the running maximum moves in every block."""
    ramp = torch.linspace(0.0, 6.0, shape["S"], dtype=torch.float64, device=inputs[0].device)[:, None]
    inputs = fills.replaced(inputs, 0, inputs[0].double() * 0.2 + 1.0)
    return fills.replaced(inputs, 1, inputs[1].double() * 0.2 + ramp)


SPEC = KernelSpec(
    name="flash_attention",
    description=(
        "softmax(sm_scale * Q @ K^T, over keys j <= i if causal) @ V for Q, K, V of [B, H, S, D]; "
        "sm_scale is D**-0.5 when None; scores and sums in float32"
    ),
    signature="(Q, K, V, causal=True, sm_scale=None)",
    reference=reference,
    baseline=baseline,
    composed=reference,
    make_inputs=make_inputs,
    shapes=(
        {"B": 1, "H": 2, "S": 32, "D": 32},
        {"B": 2, "H": 2, "S": 26, "D": 48},
        {"B": 1, "H": 2, "S": 84, "D": 64},
    ),
    large_shapes=(
        {"B": 2, "H": 4, "S": 1024, "D": 64},
        {"B": 1, "H": 3, "S": 777, "D": 128},
        {"B": 1, "H": 2, "S": 4096, "D": 128},
    ),
    edge_shapes=(
        {"B": 1, "H": 1, "S": 1, "D": 16},
        {"B": 1, "H": 1, "S": 127, "D": 64},
        {"B": 2, "H": 1, "S": 65, "D": 80},
        {"B": 1, "H": 3, "S": 17, "D": 8},
        {"B": 1, "H": 1, "S": 129, "D": 128},
    ),
    timing_shapes=(
        {"B": 2, "H": 32, "S": 2048, "D": 128},
        {"B": 2, "H": 32, "S": 1024, "D": 64},
        {"B": 1, "H": 32, "S": 4096, "D": 128},
    ),
    cpu_timing_shapes=({"B": 1, "H": 4, "S": 256, "D": 64},),
    options=({}, {"causal": False}, {"causal": True, "sm_scale": 0.3}, {"causal": False, "sm_scale": 0.05}),
    fills={
        "uniform": fills.zeros(0),
        "large": fills.scaled(0, 30.0),
        "mixed_heads": mixed_heads,
        "needle": needle,
        "opposed": opposed,
        "rising": rising,
        "large_values": fills.scaled(2, 300.0),
        "value_mean": fills.large_mean(2),
        "value_outlier": fills.outlier(2, 100.0),
    },
    strided_inputs=(0, 1, 2),
    flops=lambda shape: 2.0 * shape["B"] * shape["H"] * shape["S"] * (shape["S"] + 1) * shape["D"],
    bytes_moved=lambda shape, itemsize: 4.0 * itemsize * shape["B"] * shape["H"] * shape["S"] * shape["D"],
    reduction_length=lambda shape: max(shape["S"], shape["D"]),
    magnitude=magnitude,
)
