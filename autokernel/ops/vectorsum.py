"""Sum of one long vector.

    y = sum(x)

Added up in float32, and float32 whatever x is.  Memory-bound: x is read once.  Unlike `reduce` there is
one result only, so the work on it must be shared among programs, and their parts put together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

_ORDER_MARGIN = 4.0


def reference(x: Tensor) -> Tensor:
    """Sum of ``x[N]``, a scalar (no dimension)."""
    return x.sum()


def baseline(x: Tensor) -> Tensor:
    return torch.sum(x, dtype=torch.float32)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    return (normal((shape["N"],), dtype, generator),)


def magnitude(x: Tensor) -> Magnitude:
    # By the sum of |x| alone a million dropped terms of sixteen million would pass.  Where signs are mixed,
    # partial sums stay near the root of the sum of the squares, or the result (see `matmul`).
    typical = (x.sum().square() + x.square().sum()).sqrt()
    return Magnitude(accumulated=torch.minimum(x.abs().sum(), _ORDER_MARGIN * typical))


SPEC = KernelSpec(
    name="vectorsum",
    description="y = sum of x[N], a float32 scalar without dimensions, added up in float32",
    signature="(x)",
    reference=reference,
    baseline=baseline,
    make_inputs=make_inputs,
    shapes=({"N": 64}, {"N": 3000}, {"N": 50_000}),
    large_shapes=({"N": 1 << 20}, {"N": 5_000_011}, {"N": 1 << 24}),
    edge_shapes=({"N": 1}, {"N": 127}, {"N": 1023}, {"N": 4097}, {"N": 33_333}),
    timing_shapes=({"N": 1 << 26}, {"N": 1 << 22}, {"N": 50_000_000}, {"N": 1_638_400}),
    cpu_timing_shapes=({"N": 1 << 22}, {"N": 1 << 18}),
    fills={
        "zeros": fills.zeros(0),
        "ones": fills.constant(0, 1.0),
        "tiny": fills.scaled(0, 1e-3),
        "positive": fills.positive(0),
        "beyond_float16": fills.by_dtype(fills.scaled(0, 1e5), float16=fills.constant(0, 1000.0)),
        "large_mean": fills.large_mean(0),
        "cancelling": fills.cancelling(0, 100.0),
        "only_last": fills.only_last(0),
        "outlier": fills.outlier(0, 1e3),
        "zero_columns": fills.zero_columns(0),
    },
    result_dtypes=("float32",),
    flops=lambda shape: float(shape["N"]),
    bytes_moved=lambda shape, itemsize: float(itemsize * shape["N"] + 4),
    reduction_length=lambda shape: shape["N"],
    magnitude=magnitude,
)
