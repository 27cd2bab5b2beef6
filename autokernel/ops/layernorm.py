"""Layer normalisation over the last dimension.

    y[m, n] = (x[m, n] - mean(x[m, :])) / sqrt(var(x[m, :]) + eps) * weight[n] + bias[n]

The variance is that of the whole row (divided by N, not N - 1).  Memory-bound: x is read once and
y written once.
Source: J. L. Ba, J. R. Kiros and G. E. Hinton, Layer Normalization, arXiv 1607.06450, equation 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import n_rows, normal, random_rows
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]


def reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Shift ``x[..., N]`` to mean 0, scale it to variance 1, then by ``weight[N]``, and add ``bias[N]``."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(variance + eps) * weight + bias


def baseline(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    x = random_rows(shape, dtype, generator)
    weight = 1 + 0.2 * normal((shape["N"],), torch.float32, generator)
    bias = 0.2 * normal((shape["N"],), torch.float32, generator)
    return x, weight.to(dtype), bias.to(dtype)


def magnitude(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Magnitude:
    # The mean is a float32 sum over |x|; its error shifts every element of the row.  The variance is
    # a sum without cancellation, as long as it is taken around the mean.
    centred = x - x.mean(dim=-1, keepdim=True)
    scale = weight.abs() / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    return Magnitude(accumulated=scale * (centred.abs() + x.abs().mean(dim=-1, keepdim=True)) + bias.abs())


SPEC = KernelSpec(
    name="layernorm",
    description="y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension of x[..., N]; var over N",
    signature="(x, weight, bias, eps=1e-5)",
    reference=reference,
    baseline=baseline,
    composed=reference,
    make_inputs=make_inputs,
    shapes=({"M": 7, "N": 8}, {"M": 16, "N": 256}, {"M": 150, "N": 100}, {"M": 33, "N": 1000}),
    large_shapes=({"M": 512, "N": 4096}, {"M": 2049, "N": 768}, {"M": 3, "N": 16384}, {"M": 66000, "N": 1}),
    edge_shapes=(
        {"M": 1, "N": 1},
        {"M": 5, "N": 127},
        {"M": 3, "N": 1023},
        {"M": 2, "N": 4097},
        {"M": 300, "N": 3},
        {"B": 2, "M": 3, "N": 65},
    ),
    timing_shapes=({"M": 4096, "N": 4096}, {"M": 8192, "N": 8192}, {"M": 32768, "N": 4096}, {"M": 8192, "N": 768}),
    cpu_timing_shapes=({"M": 1024, "N": 2048}, {"M": 2048, "N": 768}),
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
    flops=lambda shape: 8.0 * n_rows(shape) * shape["N"],
    bytes_moved=lambda shape, itemsize: float(itemsize * (2 * n_rows(shape) * shape["N"] + 2 * shape["N"])),
    reduction_length=lambda shape: shape["N"],
    magnitude=magnitude,
)
