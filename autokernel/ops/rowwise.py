"""What the row-wise operations share: the sizes of ``x[..., N]`` and its random values.

A shape has ``M`` rows of ``N`` columns, and sometimes ``B``, a further leading dimension: kernels
must accept any number of leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autokernel.ops.spec import Shape

__all__ = ["n_rows", "normal", "random_rows"]


def n_rows(shape: Shape) -> int:
    """The number of rows, over all leading dimensions."""
    return shape.get("B", 1) * shape["M"]


def normal(sizes: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Standard normal values, drawn in float32 from ``generator``, on its device, rounded to ``dtype``."""
    return torch.randn(sizes, generator=generator, device=generator.device).to(dtype)


def random_rows(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Standard normal ``x[M, N]``, or ``x[B, M, N]`` when the shape has ``B``."""
    leading = (shape["B"],) if "B" in shape else ()
    return normal((*leading, shape["M"], shape["N"]), dtype, generator)
