"""A call of the model, put as the call of a kernel.

Kernels take their inputs as the operation's contract has them: row-wise ones as ``x[M, N]``,
a product as ``A[M, K]`` and ``B[K, N]``.  A `Request` holds these inputs and says how the kernel's
result becomes the value that the model expects: shape, bias, dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["FIXED_SIZES", "Request", "finish", "key_of"]

# The sizes that follow from a place's weights, and so never change from call to call.
FIXED_SIZES: Mapping[str, tuple[str, ...]] = {
    "cross_entropy": ("V",),
    "flash_attention": ("D",),
    "fused_mlp": ("F", "K", "N"),
    "layernorm": ("N",),
    "matmul": ("K", "N"),
    "reduce": (),
    "rmsnorm": ("N",),
    "rotary_embedding": ("D",),
    "softmax": (),
}


class Request(NamedTuple):
    """One call.

    Attributes:
        operation: Name of the operation.
        inputs: As ``kernel_fn`` takes them.
        options: All keyword options, sorted by name.
        sizes: Sizes by name, sorted, as `autokernel.integration.evidence.folded` gives them.
        shape: Of the value that the model expects.
        dtype: Of that value.
        bias: Added to the kernel's result, or None.
    """

    operation: str
    inputs: tuple[Tensor, ...]
    options: tuple[tuple[str, Any], ...]
    sizes: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    bias: Tensor | None = None


def finish(request: Request, output: Tensor) -> Tensor:
    """Bring a kernel's result into the shape and dtype that the model expects."""
    value = output if output.shape == request.shape else output.reshape(request.shape)
    if request.bias is not None:
        value = value + request.bias
    return value if value.dtype == request.dtype else value.to(request.dtype)


def key_of(request: Request) -> tuple[Any, ...]:
    """What a decision about the call depends on, besides its circumstances."""
    return (
        request.operation,
        request.sizes,
        request.options,
        tuple([value.dtype for value in request.inputs]),
        tuple([value.device for value in request.inputs]),
    )
