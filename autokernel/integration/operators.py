"""Kernels as operators of PyTorch, so that ``torch.compile`` keeps a graph whole around them.

An operator is registered once for each kernel text, as ``autokernel::<operation>_<hash>``, with an
implementation that says only shapes and dtypes.  Outside of ``torch.compile`` the kernel is called
directly, which is quicker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autokernel.integration.kernels import Kernel

__all__ = ["operator_of"]

_SCHEMAS = {
    "cross_entropy": "(Tensor logits, Tensor targets) -> Tensor",
    "flash_attention": "(Tensor Q, Tensor K, Tensor V, bool causal, float? sm_scale) -> Tensor",
    "fused_mlp": "(Tensor x, Tensor w_gate, Tensor w_up, Tensor w_down, str activation) -> Tensor",
    "layernorm": "(Tensor x, Tensor weight, Tensor bias, float eps) -> Tensor",
    "matmul": "(Tensor A, Tensor B) -> Tensor",
    "reduce": "(Tensor x) -> Tensor",
    "rmsnorm": "(Tensor x, Tensor weight, float eps) -> Tensor",
    "rotary_embedding": "(Tensor x, Tensor cos, Tensor sin, bool interleaved) -> Tensor",
    "softmax": "(Tensor x) -> Tensor",
}
_OPERATORS: dict[str, Any] = {}
_CURRENT: dict[str, tuple[Kernel, Callable[[], None]]] = {}  # an operator outlives the model it was made for


def _shaped_like(x: Tensor, *_rest: Any) -> Tensor:
    return x.new_empty(x.shape)


_FAKES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": lambda logits, targets: logits.new_empty((), dtype=torch.float32),
    "fused_mlp": lambda x, gate, up, down, activation: x.new_empty((*x.shape[:-1], down.shape[0])),
    "matmul": lambda A, B: A.new_empty((A.shape[0], B.shape[1])),
    "reduce": lambda x: x.new_empty(x.shape[:-1]),
}


def operator_of(kernel: Kernel, count: Callable[[], None]) -> Any:
    """The operator of a kernel: takes its inputs, then its options in the order of the signature.

    Args:
        kernel: Of one of the operations that `integrate` places.
        count: Called whenever the operator runs.
    """
    name = f"{kernel.operation}_{kernel.digest}"
    schema = _SCHEMAS[kernel.operation]
    options = [part.split()[-1] for part in schema[1 : schema.index(")")].split(", ") if not part.startswith("Tensor ")]
    dtype = torch.float32 if kernel.operation == "cross_entropy" else None
    _CURRENT[name] = (kernel, count)
    if name in _OPERATORS:
        return _OPERATORS[name]

    def run(*arguments: Any) -> Tensor:
        current, counted = _CURRENT[name]
        counted()
        inputs = arguments[: len(arguments) - len(options)]
        output = current.call(inputs, dict(zip(options, arguments[len(inputs) :], strict=True)))
        return output.to(dtype or output.dtype).contiguous()

    definition = torch.library.custom_op(f"autokernel::{name}", run, mutates_args=(), schema=schema)
    definition.register_fake(_FAKES.get(kernel.operation, _shaped_like))
    _OPERATORS[name] = getattr(torch.ops.autokernel, name).default
    return _OPERATORS[name]
