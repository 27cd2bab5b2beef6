"""Softmax over the last dimension.

    y[m, n] = exp(x[m, n] - max(x[m, :])) / sum(exp(x[m, :] - max(x[m, :])))

Memory-bound: x is read once and y written once.  A row may hold -inf, as masked attention scores
do; a row of nothing but -inf has no softmax and is not tried.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import n_rows, random_rows
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

# exp of a device may flush to zero what lies under the smallest normal float32, 2**-126.
_FLUSHED = 2.0**-126 / 2.0**-24


def reference(x: Tensor) -> Tensor:
    """Softmax of ``x[..., N]`` over the last dimension."""
    exponentials = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def baseline(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    return (random_rows(shape, dtype, generator),)


def magnitude(x: Tensor) -> Magnitude:
    # exp turns the rounding of its argument into a relative error of the term: of this one, and of all
    # that the sum is made of.  The argument is x - max, whose product with log2(e) is rounded again, or,
    # where exp2 is fed with scaled values, a difference of two that were each rounded.  That is no worse
    # than if x itself had been rounded.  These errors do not grow with N, as the error of the sum does.
    y = reference(x)
    largest = x.amax(dim=-1, keepdim=True)
    argument = torch.where(y > 0, x.abs() + largest.abs(), 0.0)
    of_the_sum = (y * argument).sum(dim=-1, keepdim=True)
    return Magnitude(accumulated=y * (1 + 2 * (argument + of_the_sum) / x.shape[-1] ** 0.5) + _FLUSHED)


SPEC = KernelSpec(
    name="softmax",
    description="y = exp(x - max) / sum(exp(x - max)) over the last dimension of x[..., N]",
    signature="(x)",
    reference=reference,
    baseline=baseline,
    composed=reference,
    make_inputs=make_inputs,
    shapes=({"M": 7, "N": 8}, {"M": 16, "N": 256}, {"M": 150, "N": 100}, {"M": 4, "N": 1023}),
    large_shapes=(
        {"M": 512, "N": 4096},
        {"M": 2049, "N": 129},
        {"M": 5, "N": 50257},
        {"M": 3, "N": 128256},
        {"M": 66000, "N": 3},
    ),
    edge_shapes=(
        {"M": 1, "N": 1},
        {"M": 5, "N": 127},
        {"M": 3, "N": 1023},
        {"M": 2, "N": 4097},
        {"M": 300, "N": 3},
        {"B": 2, "M": 3, "N": 65},
        {"M": 2, "N": 20011},  # several tiles for a kernel that takes a row of 16384 at once
    ),
    timing_shapes=({"M": 4096, "N": 4096}, {"M": 8192, "N": 8192}, {"M": 1024, "N": 32768}, {"M": 4096, "N": 50257}),
    cpu_timing_shapes=({"M": 1024, "N": 2048}, {"M": 32, "N": 50257}),
    fills={
        "zeros": fills.zeros(0),
        "hundredfold": fills.scaled(0, 100.0),
        "very_negative": fills.offset(0, -300.0),
        "large_mean": fills.large_mean(0),
        "outlier": fills.outlier(0, 100.0),
        "lone_peaks": fills.lone_peaks(0),
        "ascending": fills.ascending(0, 10.0),
        "descending": fills.descending(0),
        "row_scales": fills.row_scales(0),
        "masked_head": fills.leading_minus_inf(0),
    },
    flops=lambda shape: 5.0 * n_rows(shape) * shape["N"],
    bytes_moved=lambda shape, itemsize: 2.0 * itemsize * n_rows(shape) * shape["N"],
    reduction_length=lambda shape: shape["N"],
    magnitude=magnitude,
)
