"""Product of float8 matrices with a scale for each row of either.

    C[m, n] = scale_a[m] * scale_b[n] * sum over k of A[m, k] * B[n, k]

A and B are float8_e4m3fn (3 stored bits of significand, up to 448), both with k last, as the matrix units
want them and as ``torch.nn.Linear`` holds its weight; scales are float32.  The result is rounded once, to
``out_dtype``.  Compute-bound for large sizes, at twice the rate of half-width operands from Hopper on.

Products of e4m3 are exact in float32.  Hopper's matrix units, however, cut what they add to 13 bits after
the point of the largest addend, so a kernel has to take its sum out of them, into float32, from time to
time: at the latest after 128 terms, as ``torch._scaled_mm`` does without ``use_fast_accum``.
Source: P. Micikevicius et al., FP8 Formats for Deep Learning, arXiv 2209.05433 (the format);
DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.2 (sums of about 14 bits, taken out every 128).
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.matmul import product_magnitude
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]

_LARGEST = 448.0
_CHUNK = 128  # terms that a matrix unit adds up before the sum is taken out
_UNIT_ERROR = 2.0**-13
_ALIGNED = 16  # what torch._scaled_mm asks of K and N


def reference(A: Tensor, B: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: str = "bfloat16") -> Tensor:
    """``(A * scale_a) @ (B * scale_b).T`` for ``A[M, K]``, ``B[N, K]``, ``scale_a[M, 1]``, ``scale_b[N, 1]``.

    ``out_dtype``, ``bfloat16`` or ``float16``, says what a kernel rounds to; here nothing is rounded.
    """
    return (A @ B.T) * scale_a * scale_b.T


def baseline(A: Tensor, B: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: str = "bfloat16") -> Tensor:
    """``torch._scaled_mm`` where it takes such inputs, and else the product of what they stand for, without scales."""
    dtype = getattr(torch, out_dtype)
    if dtype is torch.bfloat16 and _multiplies_float8(A, B):
        return torch._scaled_mm(A.contiguous(), B.contiguous().T, scale_a, scale_b.T.contiguous(), out_dtype=dtype)
    # bfloat16 holds e4m3 exactly, and the range of the product, but has too few bits for a float16 result.
    exact = torch.bfloat16 if dtype is torch.bfloat16 and A.is_cuda else torch.float32
    return ((A.to(exact) @ B.to(exact).T).float() * scale_a * scale_b.T).to(dtype)


def _multiplies_float8(A: Tensor, B: Tensor) -> bool:
    # Scales by row: from compute capability 9.0 on; AMD's matrix units have another e4m3.
    aligned = A.shape[1] % _ALIGNED == 0 and B.shape[0] % _ALIGNED == 0
    return A.is_cuda and torch.version.hip is None and aligned and torch.cuda.get_device_capability(A.device) >= (9, 0)


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Normal values, scaled so that the largest of each row is the largest of the format."""
    A, scale_a = _quantised(shape["M"], shape["K"], dtype, generator)
    B, scale_b = _quantised(shape["N"], shape["K"], dtype, generator)
    return A, B, scale_a, scale_b


def _quantised(n_rows: int, n_cols: int, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    values = normal((n_rows, n_cols), torch.float32, generator)
    scale = values.abs().amax(dim=1, keepdim=True) / _LARGEST
    return (values / scale).clamp(-_LARGEST, _LARGEST).to(dtype), scale


def magnitude(A: Tensor, B: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: str = "bfloat16") -> Magnitude:
    # In a chunk each of up to 128 products is cut by up to 2**-13 of the largest addend; that is some ten times
    # the typical product, and a cut on average a third of its bound.  Cuts are independent, so over all chunks
    # they come to about 2**-13 * sqrt(128) / 5 of the root of the sum of the squared products.  Ten times that
    # is allowed, and written in the unit of float32 sums, of which the bound takes 3 * sqrt(K) * 2**-24.
    a, b = A * scale_a, B * scale_b
    K = A.shape[1]
    spread = (a.square() @ b.square().T).sqrt()
    in_chunks = 2 * _UNIT_ERROR * min(K, _CHUNK) ** 0.5 / (3 * K**0.5 * 2.0**-24)
    return Magnitude(accumulated=product_magnitude(a, b.T) + in_chunks * spread)


def bytes_moved(shape: Shape, itemsize: int) -> float:
    M, N, K = shape["M"], shape["N"], shape["K"]
    return float(itemsize * (M * K + N * K) + 4 * (M + N) + 2 * M * N)


SPEC = KernelSpec(
    name="matmul_fp8",
    description=(
        "C[M, N] = (A[M, K] * scale_a[M, 1]) @ (B[N, K] * scale_b[N, 1]).T; A and B float8_e4m3fn, scales float32; "
        "out_dtype is bfloat16 or float16; sums leave the matrix units for float32 every 128 terms"
    ),
    signature='(A, B, scale_a, scale_b, out_dtype="bfloat16")',
    reference=reference,
    baseline=baseline,
    make_inputs=make_inputs,
    shapes=({"M": 64, "N": 64, "K": 64}, {"M": 33, "N": 150, "K": 72}, {"M": 48, "N": 80, "K": 272}),
    large_shapes=(
        {"M": 512, "N": 512, "K": 512},
        {"M": 1000, "N": 777, "K": 1234},
        {"M": 2048, "N": 2048, "K": 4096},
        {"M": 16, "N": 4096, "K": 4096},
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
        {"M": 8192, "N": 8192, "K": 8192},
        {"M": 4096, "N": 11008, "K": 4096},
        {"M": 16, "N": 4096, "K": 4096},
    ),
    cpu_timing_shapes=({"M": 256, "N": 256, "K": 256},),
    dtypes=("float8_e4m3fn",),
    options=({}, {"out_dtype": "float16"}),
    fills={
        "zeros": fills.zeros(0),
        "tiny": fills.scaled(2, 1e-3),
        "subnormal": fills.scaled(0, 2.0**-14),
        "largest": fills.constant(0, _LARGEST),
        "positive": fills.together(fills.positive(0), fills.positive(1)),
        "outlier": fills.together(fills.scaled(0, 2.0**-6), fills.outlier(0, 64.0)),
        "row_scales": fills.together(fills.row_scales(2, -4.0, 4.0), fills.row_scales(3, -3.0, 3.0)),
        "zero_columns": fills.zero_columns(0),
    },
    strided_inputs=(0, 1),
    result_dtypes=("out_dtype",),
    flops=lambda shape: 2.0 * shape["M"] * shape["N"] * shape["K"],
    bytes_moved=bytes_moved,
    reduction_length=lambda shape: shape["K"],
    magnitude=magnitude,
)
