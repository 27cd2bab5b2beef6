"""Rotary position embedding, of neighbours or of halves.

    y[b, h, s, j] = x[b, h, s, j] * cos[s, i] - x[b, h, s, k] * sin[s, i]
    y[b, h, s, k] = x[b, h, s, j] * sin[s, i] + x[b, h, s, k] * cos[s, i]

The pair i is (j, k) = (2i, 2i + 1), or (i, i + D/2) with ``interleaved=False``.
Memory-bound: x is read once and y written once; the tables are small.
Source: J. Su et al., RoFormer, arXiv 2104.09864, equation 34 (neighbours); halves as in GPT-NeoX and the
language models of the Llama family as Hugging Face has them (``rotate_half``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

_BASE = 10000.0


def reference(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = True) -> Tensor:
    """Turn each pair of ``x[B, H, S, D]`` by the angle whose ``cos[S, D/2]`` and ``sin[S, D/2]`` are given."""
    first, second = pairs_of(x, interleaved)
    return joined(first * cos - second * sin, first * sin + second * cos, interleaved)


def pairs_of(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The first and the second numbers of all pairs, each ``[..., D/2]``."""
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def joined(first: Tensor, second: Tensor, interleaved: bool) -> Tensor:
    """The pairs put back into ``[..., D]``."""
    return torch.stack((first, second), dim=-1).flatten(-2) if interleaved else torch.cat((first, second), dim=-1)


def baseline(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = True) -> Tensor:
    """Neighbours as complex numbers in float32, as Llama's own code has it; halves as Hugging Face has them."""
    if not interleaved:
        first, second = pairs_of(x, interleaved)
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin
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


def magnitude(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = True) -> Magnitude:
    first, second = pairs_of(x.abs(), interleaved)
    cos, sin = cos.abs(), sin.abs()
    return Magnitude(accumulated=joined(first * cos + second * sin, first * sin + second * cos, interleaved))


def bytes_moved(shape: Shape, itemsize: int) -> float:
    return float(itemsize * shape["S"] * shape["D"] * (2 * shape["B"] * shape["H"] + 1))


SPEC = KernelSpec(
    name="rotary_embedding",
    description=(
        "x[B, H, S, D] with its pairs (2i, 2i + 1), or (i, i + D/2) if not interleaved, turned by the angle of "
        "cos[S, D/2], sin[S, D/2]: y_first = first * cos - second * sin, y_second = first * sin + second * cos"
    ),
    signature="(x, cos, sin, interleaved=True)",
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
    extensions=({"interleaved": False},),
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
