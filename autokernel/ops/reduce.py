"""Sum over the last dimension.

    y[m] = sum(x[m, :])

Added up in float32 and rounded once to x's dtype.  Memory-bound: x is read once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import n_rows, random_rows
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]


def reference(x: Tensor) -> Tensor:
    """Sum of ``x[..., N]`` over the last dimension; the result has one dimension less."""
    return x.sum(dim=-1)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    return (random_rows(shape, dtype, generator),)


def magnitude(x: Tensor) -> Magnitude:
    return Magnitude(accumulated=x.abs().sum(dim=-1))


SPEC = KernelSpec(
    name="reduce",
    description="y[...] = sum of x[..., N] over the last dimension, in float32, rounded once to x's dtype",
    signature="(x)",
    reference=reference,
    baseline=reference,
    make_inputs=make_inputs,
    shapes=({"M": 7, "N": 8}, {"M": 16, "N": 256}, {"M": 150, "N": 100}, {"M": 3, "N": 2500}),
    large_shapes=({"M": 512, "N": 4096}, {"M": 2049, "N": 129}, {"M": 3, "N": 50257}, {"M": 66000, "N": 3}),
    edge_shapes=(
        {"M": 1, "N": 1},
        {"M": 5, "N": 127},
        {"M": 3, "N": 1023},
        {"M": 2, "N": 4097},
        {"M": 300, "N": 3},
        {"B": 2, "M": 3, "N": 65},
    ),
    timing_shapes=({"M": 4096, "N": 4096}, {"M": 8192, "N": 8192}, {"M": 1024, "N": 32768}, {"M": 32768, "N": 512}),
    cpu_timing_shapes=({"M": 2048, "N": 4096}, {"M": 64, "N": 50257}),
    fills={
        "zeros": fills.zeros(0),
        "ones": fills.constant(0, 1.0),
        "tiny": fills.scaled(0, 1e-3),
        "positive": fills.positive(0),
        "large_mean": fills.by_dtype(
            fills.offset(0, 1e4), float16=fills.offset(0, 8.0), bfloat16=fills.offset(0, 30.0)
        ),
        "cancelling": fills.cancelling(0, 100.0),
        "only_last": fills.only_last(0),
        "outlier": fills.outlier(0, 1e3),
        "row_scales": fills.row_scales(0),
        "zero_columns": fills.zero_columns(0),
    },
    flops=lambda shape: float(n_rows(shape) * shape["N"]),
    bytes_moved=lambda shape, itemsize: float(itemsize * n_rows(shape) * (shape["N"] + 1)),
    reduction_length=lambda shape: shape["N"],
    magnitude=magnitude,
)
