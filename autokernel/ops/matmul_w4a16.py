"""Product of half-width activations with 4-bit weights.

    y[m, n] = sum over k of x[m, k] * w[n, k]
    w[n, k] = (q[n, k] - zero[n, k // G]) * scale[n, k // G]

As in weight-only quantised language models (GPTQ, AWQ): q and zero are whole numbers from 0 to 15, and
G weights in a row share scale and zero.  Two weights lie in a byte: ``packed[n, j]`` holds ``q[n, 2 * j]``
in its low four bits and ``q[n, 2 * j + 1]`` in its high ones.  G is K divided by the columns of ``scale``:
a power of two, 16 or more.  Memory-bound for few rows of x, where it moves a quarter of the bytes that
half-width weights would.
Source: E. Frantar et al., GPTQ, arXiv 2210.17323; J. Lin et al., AWQ, arXiv 2306.00978.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops import fills
from autokernel.ops.matmul import product_magnitude
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec, Magnitude, Shape

__all__ = ["SPEC"]


def dequantised(packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """The weights ``[N, K]`` in the dtype of ``scale``."""
    codes = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
    groups = codes.to(scale.dtype).unflatten(-1, (scale.shape[-1], -1))
    return ((groups - zero.to(scale.dtype)[..., None]) * scale[..., None]).flatten(-2)


def reference(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """``x[M, K] @ w.T`` with ``packed[N, K/2]`` uint8, ``scale[N, K/G]`` in x's dtype, ``zero[N, K/G]`` uint8."""
    return x @ dequantised(packed, scale, zero).T


def make_inputs(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Normal weights of size ``K**-0.5``, quantised from the least to the greatest of each group.

    Raises:
        ValueError: The group size is no power of two from 16 on, or does not divide K.
    """
    M, N, K, G = shape["M"], shape["N"], shape["K"], shape["G"]
    if G < 16 or G & (G - 1) or K % G:
        raise ValueError(f"the group size G={G} must be a power of two from 16 on, and divide K={K}")
    x = normal((M, K), dtype, generator)
    weights = normal((N, K // G, G), torch.float32, generator) * K**-0.5
    least, greatest = weights.amin(dim=-1), weights.amax(dim=-1)
    scale = ((greatest - least) / 15).to(dtype)
    step = scale.float()
    zero = (-least / step).round().clamp(0, 15)
    codes = (weights / step[..., None] + zero[..., None]).round().clamp(0, 15).to(torch.uint8).flatten(1)
    return x, codes[:, ::2] | codes[:, 1::2] << 4, scale, zero.to(torch.uint8)


def magnitude(x: Tensor, packed: Tensor, scale: Tensor, zero: Tensor) -> Magnitude:
    # The codes are exact.  The product of code and scale is customarily rounded to x's dtype before it is
    # multiplied with x: errors that are independent from weight to weight.
    w = dequantised(packed, scale, zero)
    return Magnitude(
        accumulated=product_magnitude(x, w.T),
        rounded=(x.square() @ w.T.square()).sqrt(),
    )


def extreme_codes(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Weights and zeros are 0 or 15: the signs of four bits are taken for something else sooner or later."""
    x, packed, scale, zero = inputs
    low, high = (torch.randint(2, packed.shape, generator=generator, device=packed.device) for _ in range(2))
    zeros = torch.randint(2, zero.shape, generator=generator, device=zero.device)
    return x, (15 * low + 240 * high).to(torch.uint8), scale, (15 * zeros).to(torch.uint8)


def group_scales(inputs: tuple[Tensor, ...], shape: Shape, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Each group's scale times its own power of two: a neighbour's scale is far off."""
    scale = inputs[2].double()
    exponent = torch.rand(scale.shape, generator=generator, device=scale.device).double()
    return fills.replaced(inputs, 2, scale * torch.exp2(8 * exponent - 4))


def bytes_moved(shape: Shape, itemsize: int) -> float:
    M, N, K, G = shape["M"], shape["N"], shape["K"], shape["G"]
    return float(itemsize * (M * K + M * N) + N * K / 2 + (itemsize + 1) * N * K / G)


SPEC = KernelSpec(
    name="matmul_w4a16",
    description=(
        "y[M, N] = x[M, K] @ w.T with w[n, k] = (q[n, k] - zero[n, k // G]) * scale[n, k // G]; packed[N, K/2] uint8 "
        "holds q[n, 2j] in the low and q[n, 2j + 1] in the high four bits; scale[N, K/G] in x's dtype, zero[N, K/G] "
        "uint8; G is a power of two from 16 on; sums in float32"
    ),
    signature="(x, packed, scale, zero)",
    reference=reference,
    baseline=reference,
    make_inputs=make_inputs,
    shapes=(
        {"M": 16, "N": 32, "K": 64, "G": 32},
        {"M": 5, "N": 72, "K": 128, "G": 64},
        {"M": 33, "N": 50, "K": 192, "G": 32},
    ),
    large_shapes=(
        {"M": 256, "N": 512, "K": 1024, "G": 128},
        {"M": 100, "N": 777, "K": 1280, "G": 64},
        {"M": 1, "N": 256, "K": 4096, "G": 128},
        {"M": 4, "N": 4096, "K": 1024, "G": 128},
        {"M": 1024, "N": 1024, "K": 2048, "G": 128},
    ),
    edge_shapes=(
        {"M": 1, "N": 1, "K": 32, "G": 32},
        {"M": 1, "N": 127, "K": 96, "G": 32},
        {"M": 127, "N": 1, "K": 64, "G": 64},
        {"M": 3, "N": 5, "K": 1024, "G": 128},
        {"M": 65, "N": 129, "K": 32, "G": 32},
    ),
    timing_shapes=(
        {"M": 16, "N": 4096, "K": 4096, "G": 128},
        {"M": 1, "N": 11008, "K": 4096, "G": 128},
        {"M": 256, "N": 4096, "K": 4096, "G": 128},
        {"M": 4096, "N": 4096, "K": 4096, "G": 128},
    ),
    cpu_timing_shapes=({"M": 8, "N": 512, "K": 1024, "G": 128},),
    dtypes=("float16", "bfloat16"),
    fills={
        "zeros": fills.zeros(0),
        "tiny": fills.scaled(0, 1e-2),
        "large": fills.scaled(0, 100.0),
        "outlier": fills.outlier(0, 100.0),
        "row_scales": fills.row_scales(0),
        "zero_columns": fills.zero_columns(0),
        "extreme_codes": extreme_codes,
        "group_scales": group_scales,
    },
    flops=lambda shape: 2.0 * shape["M"] * shape["N"] * shape["K"],
    bytes_moved=bytes_moved,
    reduction_length=lambda shape: shape["K"],
    magnitude=magnitude,
)
