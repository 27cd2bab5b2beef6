"""Gated feed-forward block of a transformer.

    y = (act(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T

``act`` is SiLU, GELU (the exact one, with erf) or ReLU.  Products are added up in float32; the
hidden layer may be rounded to the inputs' dtype, as PyTorch rounds it.  Compute-bound for many rows.
Source: N. Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202, equation 6.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.matmul import product_magnitude
from autokernel.ops.rowwise import n_rows, normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "relu": torch.nn.functional.relu,
}


def reference(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, activation: str = "silu") -> Tensor:
    """The block on ``x[..., K]``, with ``w_gate[F, K]``, ``w_up[F, K]``, ``w_down[N, F]``; returns ``[..., N]``."""
    return (ACTIVATIONS[activation](x @ w_gate.T) * (x @ w_up.T)) @ w_down.T


def baseline(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, activation: str = "silu") -> Tensor:
    linear = torch.nn.functional.linear
    return linear(ACTIVATIONS[activation](linear(x, w_gate)) * linear(x, w_up), w_down)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Weights of size ``K**-0.5`` and ``F**-0.5``, so that gates and outputs are of order 1."""
    K, F = shape["K"], shape["F"]
    leading = (shape["B"],) if "B" in shape else ()
    x = normal((*leading, shape["M"], K), dtype, generator)
    w_gate = normal((F, K), torch.float32, generator) * K**-0.5
    w_up = normal((F, K), torch.float32, generator) * K**-0.5
    w_down = normal((shape["N"], F), torch.float32, generator) * F**-0.5
    return x, w_gate.to(dtype), w_up.to(dtype), w_down.to(dtype)


def magnitude(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, activation: str = "silu") -> Magnitude:
    # The errors of the hidden layer are independent from unit to unit: through w_down they add up as
    # the root of the sum of their squares.
    act = ACTIVATIONS[activation]
    gate, up = x @ w_gate.T, x @ w_up.T
    step = 1e-3
    slope = (act(gate + step) - act(gate - step)).abs() / (2 * step)
    hidden = act(gate) * up

    from_sums = slope * up.abs() * product_magnitude(x, w_gate.T) + act(gate).abs() * product_magnitude(x, w_up.T)
    from_act = up.abs() * gate.abs()  # GELU's 1 + erf cancels for negative gates, so its error is absolute
    spread = ((from_sums + from_act).square() @ w_down.T.square()).sqrt()

    # A rounded gate, and three more roundings of the size of the hidden value: act, up, their product.
    roundings = (slope * gate * up).square() + 3 * hidden.square()
    return Magnitude(
        accumulated=product_magnitude(hidden, w_down.T) + spread,
        rounded=(roundings @ w_down.T.square()).sqrt(),
    )


def bytes_moved(shape: Shape, itemsize: int) -> float:
    K, F, N = shape["K"], shape["F"], shape["N"]
    return float(itemsize * (n_rows(shape) * (K + N) + 2 * F * K + N * F))


SPEC = KernelSpec(
    name="fused_mlp",
    description=(
        "y = (act(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T for x[..., K], w_gate[F, K], w_up[F, K], w_down[N, F]; "
        "act is silu, gelu (with erf) or relu; sums in float32"
    ),
    signature='(x, w_gate, w_up, w_down, activation="silu")',
    reference=reference,
    baseline=baseline,
    composed=reference,
    make_inputs=make_inputs,
    shapes=(
        {"M": 32, "K": 64, "F": 96, "N": 64},
        {"M": 5, "K": 128, "F": 64, "N": 128},
        {"M": 48, "K": 100, "F": 150, "N": 72},
    ),
    large_shapes=(
        {"M": 256, "K": 512, "F": 1376, "N": 512},
        {"M": 100, "K": 1000, "F": 777, "N": 333},
        {"M": 1024, "K": 2048, "F": 5632, "N": 2048},
    ),
    edge_shapes=(
        {"M": 1, "K": 1, "F": 1, "N": 1},
        {"M": 1, "K": 65, "F": 127, "N": 33},
        {"M": 129, "K": 7, "F": 5, "N": 3},
        {"B": 2, "M": 3, "K": 31, "F": 70, "N": 17},
        {"M": 2, "K": 70, "F": 33, "N": 260},  # more outputs than a tile is wide
    ),
    timing_shapes=(
        {"M": 2048, "K": 4096, "F": 11008, "N": 4096},
        {"M": 512, "K": 4096, "F": 11008, "N": 4096},
        {"M": 4096, "K": 2048, "F": 5632, "N": 2048},
    ),
    cpu_timing_shapes=({"M": 64, "K": 256, "F": 688, "N": 256},),
    options=({}, {"activation": "gelu"}, {"activation": "relu"}),
    fills={
        "zeros": fills.zeros(0),
        "tiny": fills.scaled(0, 1e-2),
        "large_gates": fills.scaled(1, 25.0),
        "large": fills.scaled(0, 30.0),
        "outlier": fills.outlier(0, 50.0),
        "row_scales": fills.row_scales(0, -4.0, 4.0),
        "zero_columns": fills.zero_columns(0),
    },
    strided_inputs=(0, 1, 2, 3),
    flops=lambda shape: 2.0 * n_rows(shape) * shape["F"] * (2 * shape["K"] + shape["N"]),
    bytes_moved=bytes_moved,
    reduction_length=lambda shape: max(shape["K"], shape["F"]),
    magnitude=magnitude,
)
