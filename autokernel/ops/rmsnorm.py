"""Root-mean-square normalisation over the last dimension.

    y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]

Memory-bound: x is read once and y written once.
Source: B. Zhang and R. Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019, equation 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import n_rows, normal, random_rows
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]


def reference(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise ``x[..., N]`` by its root mean square and scale by ``weight[N]``."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def baseline(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    x = random_rows(shape, dtype, generator)
    weight = 1 + 0.2 * normal((shape["N"],), torch.float32, generator)
    return x, weight.to(dtype)


def magnitude(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Magnitude:
    # The sum of squares has no cancellation, so its relative error carries over to y.
    return Magnitude(accumulated=reference(x, weight, eps).abs())


SPEC = KernelSpec(
    name="rmsnorm",
    description="y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n], over the last dimension of x[..., N]",
    signature="(x, weight, eps=1e-6)",
    reference=reference,
    baseline=baseline,
    composed=reference,
    make_inputs=make_inputs,
    shapes=({"M": 7, "N": 8}, {"M": 16, "N": 256}, {"M": 150, "N": 100}, {"M": 33, "N": 1000}),
    large_shapes=({"M": 512, "N": 4096}, {"M": 2049, "N": 768}, {"M": 3, "N": 50257}, {"M": 66000, "N": 4}),
    edge_shapes=(
        {"M": 1, "N": 1},
        {"M": 5, "N": 127},
        {"M": 3, "N": 1023},
        {"M": 2, "N": 4097},
        {"M": 300, "N": 3},
        {"B": 2, "M": 3, "N": 65},
    ),
    timing_shapes=({"M": 4096, "N": 4096}, {"M": 2048, "N": 4096}, {"M": 8192, "N": 8192}, {"M": 32768, "N": 4096}),
    cpu_timing_shapes=({"M": 512, "N": 4096},),
    options=({}, {"eps": 1e-2}, {"eps": 1e-12}),
    fills={
        "zeros": fills.zeros(0),
        "constant": fills.constant(0, 3.0),
        "tiny": fills.scaled(0, 1e-3),
        "large": fills.scaled(0, 300.0),
        "large_mean": fills.large_mean(0),
        "outlier": fills.outlier(0, 1e3),
        "row_scales": fills.row_scales(0),
    },
    flops=lambda shape: 4.0 * n_rows(shape) * shape["N"],
    bytes_moved=lambda shape, itemsize: float(itemsize * (2 * n_rows(shape) * shape["N"] + shape["N"])),
    reduction_length=lambda shape: shape["N"],
    magnitude=magnitude,
)
