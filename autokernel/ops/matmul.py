"""Matrix product.

    C[m, n] = sum over k of A[m, k] * B[k, n]

Added up in float32; float32 operands are multiplied as float32, not as TF32.  Compute-bound for
large sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC", "product_magnitude"]

_ORDER_MARGIN = 4.0


def reference(A: Tensor, B: Tensor) -> Tensor:
    """``A[M, K] @ B[K, N]``."""
    return A @ B


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    A = normal((shape["M"], shape["K"]), dtype, generator)
    B = normal((shape["K"], shape["N"]), dtype, generator)
    return A, B


def product_magnitude(A: Tensor, B: Tensor) -> Tensor:
    """The size that the rounding errors of ``A @ B``, added up in float32, scale with.

    ``|A| @ |B|`` bounds them in any order of addition.  Where signs are mixed, partial sums stay far
    below it: near the root of the sum of the squared terms, or the result, if that is larger.  Four
    times that root is allowed, and the smaller of the two taken; by ``|A| @ |B|`` alone a TF32 product
    with K = 4096 would pass for float32.
    """
    typical = ((A @ B).square() + A.square() @ B.square()).sqrt()
    return torch.minimum(A.abs() @ B.abs(), _ORDER_MARGIN * typical)


def magnitude(A: Tensor, B: Tensor) -> Magnitude:
    return Magnitude(accumulated=product_magnitude(A, B))


def bytes_moved(shape: Shape, itemsize: int) -> float:
    M, N, K = shape["M"], shape["N"], shape["K"]
    return float(itemsize * (M * K + K * N + M * N))


SPEC = KernelSpec(
    name="matmul",
    description="C[M, N] = A[M, K] @ B[K, N], added up in float32; float32 operands are not rounded to TF32",
    signature="(A, B)",
    reference=reference,
    baseline=torch.matmul,
    make_inputs=make_inputs,
    shapes=({"M": 64, "N": 64, "K": 64}, {"M": 33, "N": 150, "K": 72}, {"M": 128, "N": 96, "K": 200}),
    large_shapes=(
        {"M": 512, "N": 512, "K": 512},
        {"M": 1000, "N": 777, "K": 1234},
        {"M": 2048, "N": 2048, "K": 4096},
        {"M": 8, "N": 4096, "K": 4096},
    ),
    edge_shapes=(
        {"M": 1, "N": 1, "K": 1},
        {"M": 1, "N": 127, "K": 65},
        {"M": 127, "N": 1, "K": 129},
        {"M": 65, "N": 129, "K": 7},
        {"M": 3, "N": 5, "K": 1023},
        {"M": 1153, "N": 130, "K": 9},  # more than one group of tiles, the last one not full
    ),
    timing_shapes=(
        {"M": 4096, "N": 4096, "K": 4096},
        {"M": 2048, "N": 2048, "K": 2048},
        {"M": 8192, "N": 8192, "K": 8192},
        {"M": 4096, "N": 11008, "K": 4096},
    ),
    cpu_timing_shapes=({"M": 384, "N": 384, "K": 384},),
    fills={
        "zeros": fills.zeros(0),
        "tiny": fills.scaled(0, 1e-3),
        "beyond_float16": fills.by_dtype(fills.scaled(0, 1e5), float16=fills.scaled(0, 100.0)),
        "positive": fills.together(fills.positive(0), fills.positive(1)),
        "outlier": fills.outlier(0, 100.0),
        "row_scales": fills.row_scales(0),
        "zero_columns": fills.zero_columns(0),
    },
    strided_inputs=(0, 1),
    flops=lambda shape: 2.0 * shape["M"] * shape["N"] * shape["K"],
    bytes_moved=bytes_moved,
    reduction_length=lambda shape: shape["K"],
    magnitude=magnitude,
)
