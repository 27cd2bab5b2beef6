"""Rotary position embedding, interleaved pairs.

    y[b, h, s, 2i]     = x[b, h, s, 2i] * cos[s, i] - x[b, h, s, 2i + 1] * sin[s, i]
    y[b, h, s, 2i + 1] = x[b, h, s, 2i] * sin[s, i] + x[b, h, s, 2i + 1] * cos[s, i]

Memory-bound: x is read once and y written once; the tables are small.
Source: J. Su et al., RoFormer, arXiv 2104.09864, equation 34 (pairs as there: 2i with 2i + 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

_BASE = 10000.0


def reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of ``x[B, H, S, D]`` by the angle whose ``cos[S, D/2]`` and ``sin[S, D/2]`` are given."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def baseline(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As a product of complex numbers in float32, as Llama's own code has it."""
    wide = x.float().contiguous()
    if wide.storage_offset() % 2:  # a complex number starts at an even element
        wide = wide.clone()
    pairs = torch.view_as_complex(wide.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(cos.float(), sin.float())).flatten(-2).to(x.dtype)


def tables(shape: Shape, dtype: torch.dtype, device: torch.device, first: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin of ``position * base**(-2i / D)`` for the positions from ``first`` on."""
    half = shape["D"] // 2
    position = torch.arange(first, first + shape["S"], dtype=torch.float64, device=device)
    frequency = _BASE ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
    angle = position[:, None] * frequency
    return angle.cos().to(dtype), angle.sin().to(dtype)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    x = normal((shape["B"], shape["H"], shape["S"], shape["D"]), dtype, generator)
    return (x, *tables(shape, dtype, x.device))


def late_positions(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The tables of the positions from 100 000 on, where every angle is far from zero."""
    x = inputs[0]
    return (x, *tables(shape, x.dtype, x.device, first=100_000))


def magnitude(x: Tensor, cos: Tensor, sin: Tensor) -> Magnitude:
    even, odd = x[..., 0::2].abs(), x[..., 1::2].abs()
    terms = torch.stack((even * cos.abs() + odd * sin.abs(), even * sin.abs() + odd * cos.abs()), dim=-1)
    return Magnitude(accumulated=terms.flatten(-2))


def bytes_moved(shape: Shape, itemsize: int) -> float:
    return float(itemsize * shape["S"] * shape["D"] * (2 * shape["B"] * shape["H"] + 1))


SPEC = KernelSpec(
    name="rotary_embedding",
    description=(
        "x[B, H, S, D] with its pairs (2i, 2i + 1) turned by the angle of cos[S, D/2], sin[S, D/2]: "
        "y_even = even * cos - odd * sin, y_odd = even * sin + odd * cos"
    ),
    signature="(x, cos, sin)",
    reference=reference,
    baseline=baseline,
    composed=reference,
    make_inputs=make_inputs,
    shapes=(
        {"B": 1, "H": 2, "S": 16, "D": 8},
        {"B": 2, "H": 3, "S": 33, "D": 64},
        {"B": 1, "H": 4, "S": 24, "D": 80},
    ),
    large_shapes=(
        {"B": 2, "H": 8, "S": 1024, "D": 128},
        {"B": 1, "H": 5, "S": 777, "D": 96},
        {"B": 1, "H": 2, "S": 4097, "D": 256},
    ),
    edge_shapes=(
        {"B": 1, "H": 1, "S": 1, "D": 2},
        {"B": 3, "H": 1, "S": 7, "D": 6},
        {"B": 1, "H": 3, "S": 5, "D": 126},
        {"B": 1, "H": 1, "S": 129, "D": 10},
        {"B": 2, "H": 2, "S": 3, "D": 1022},
    ),
    timing_shapes=(
        {"B": 1, "H": 32, "S": 4096, "D": 128},
        {"B": 4, "H": 32, "S": 2048, "D": 128},
        {"B": 8, "H": 12, "S": 1024, "D": 64},
    ),
    cpu_timing_shapes=({"B": 1, "H": 16, "S": 1024, "D": 128},),
    fills={
        "zeros": fills.zeros(0),
        "tiny": fills.scaled(0, 1e-3),
        "large": fills.scaled(0, 1e3),
        "outlier": fills.outlier(0, 1e3),
        "row_scales": fills.row_scales(0),
        "late_positions": late_positions,
    },
    flops=lambda shape: 3.0 * shape["B"] * shape["H"] * shape["S"] * shape["D"],
    bytes_moved=bytes_moved,
    reduction_length=lambda shape: 2,
    magnitude=magnitude,
)
