"""The functions of PyTorch that a kernel can stand in for, and how their arguments are read.

Each reader takes the arguments of one function and returns a `Request`, or says in a few words why
no kernel computes that call (a mask, dropout, another dimension).  What stands here is only the
form of a call; whether a kernel was verified for it is the guard's question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autokernel.integration.requests import Request

__all__ = ["DIRECT", "FUNCTIONS", "read_call", "row_request"]

Reader = Callable[..., "Request | str"]


def _rows(x: Tensor) -> Tensor:
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def row_request(operation: str, x: Tensor, *weights: Tensor, **options: Any) -> Request | str:
    """A row-wise operation on ``x[..., N]`` with weights of ``[N]``, whose result has x's shape."""
    if x.dim() == 0 or x.numel() == 0:
        return "an empty tensor or a number"
    n_cols = x.shape[-1]
    if any(weight.shape != (n_cols,) for weight in weights):
        return "a weight that is not of the last dimension"
    rows = _rows(x)
    sizes = (("M", rows.shape[0]), ("N", n_cols))
    return Request(operation, (rows, *weights), tuple(sorted(options.items())), sizes, tuple(x.shape), x.dtype)


def read_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Request | str:
    if tuple(normalized_shape) != tuple(input.shape[-1:]):
        return "more than the last dimension"
    weight = input.new_ones(input.shape[-1]) if weight is None else weight
    bias = input.new_zeros(input.shape[-1]) if bias is None else bias
    return row_request("layernorm", input, weight, bias, eps=float(eps))


def read_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Request | str:
    if tuple(normalized_shape) != tuple(input.shape[-1:]):
        return "more than the last dimension"
    if eps is None and input.dtype != torch.float32:
        return "eps=None, which means another number in each version of PyTorch"
    weight = input.new_ones(input.shape[-1]) if weight is None else weight
    return row_request("rmsnorm", input, weight, eps=float(torch.finfo(input.dtype).eps if eps is None else eps))


def read_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Request | str:
    if dim is None or dim not in (-1, input.dim() - 1):
        return "another dimension than the last"
    return row_request("softmax", input if dtype is None else input.to(dtype))


def read_torch_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Request | str:
    return read_softmax(input, dim, dtype=dtype)


def read_sum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Request | str:
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if len(dims) != 1 or input.dim() < 1 or dims[0] not in (-1, input.dim() - 1):
        return "another dimension than the last"
    if dtype not in (None, input.dtype):
        return "a sum in another dtype"
    request = row_request("reduce", input)
    if isinstance(request, str):
        return request
    shape = (*input.shape[:-1], 1) if keepdim else tuple(input.shape[:-1])
    return request._replace(shape=shape)


def _product(A: Tensor, B: Tensor, bias: Tensor | None, shape: tuple[int, ...]) -> Request | str:
    if A.numel() == 0 or B.numel() == 0:
        return "an empty tensor"
    if bias is not None and bias.shape != (B.shape[1],):
        return "a bias that is no row"
    if bias is not None and bias.dtype != A.dtype:
        return "a bias of another dtype"
    sizes = (("K", A.shape[1]), ("M", A.shape[0]), ("N", B.shape[1]))
    return Request("matmul", (A, B), (), sizes, shape, A.dtype, bias)


def read_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Request | str:
    if weight.dim() != 2 or input.dim() == 0 or input.shape[-1] != weight.shape[1]:
        return "a weight that is no matrix"
    return _product(_rows(input), weight.t(), bias, (*input.shape[:-1], weight.shape[0]))


def read_matmul(input: Tensor, other: Tensor) -> Request | str:
    if not isinstance(other, Tensor) or other.dim() != 2 or input.dim() < 2 or input.shape[-1] != other.shape[0]:
        return "a product of other than [..., K] and [K, N]"
    return _product(_rows(input), other, None, (*input.shape[:-1], other.shape[1]))


def read_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Request | str:
    if beta != 1 or alpha != 1 or input.dim() != 1:
        return "addmm with a matrix or factors"
    return _product(mat1, mat2, input, (mat1.shape[0], mat2.shape[1]))


def read_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Request | str:
    if input.dim() != 2 or target.dim() != 1 or target.dtype != torch.int64 or input.shape[:1] != target.shape:
        return "other than logits[N, V] with classes[N]"
    if weight is not None or label_smoothing or ignore_index != -100 or reduction != "mean":
        return "class weights, label smoothing, or another reduction or ignore_index"
    if size_average is not None or reduce is not None or input.numel() == 0:
        return "a legacy reduction, or no rows"
    sizes = (("N", input.shape[0]), ("V", input.shape[1]))
    return Request("cross_entropy", (input, target), (), sizes, (), input.dtype)


def read_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Request | str:
    if attn_mask is not None:
        return "an attention mask"
    if dropout_p:
        return "dropout"
    if query.dim() != 4 or key.dim() != 4 or key.shape != value.shape or query.numel() == 0:
        return "queries, keys and values that are not [B, H, S, D], or values of another width than keys"
    B, H, S, D = query.shape
    if enable_gqa and key.shape[1] and H % key.shape[1] == 0:  # each head of keys serves several of queries
        key, value = (one.repeat_interleave(H // key.shape[1], dim=1) for one in (key, value))
    if query.shape != key.shape:
        return "queries of another number or length than keys"
    usual = scale is None or scale == D**-0.5
    options = (("causal", bool(is_causal)), ("sm_scale", None if usual or scale is None else float(scale)))
    sizes = (("B", B), ("D", D), ("H", H), ("S", S))
    return Request("flash_attention", (query, key, value), options, sizes, tuple(query.shape), query.dtype)


FUNCTIONS: Mapping[Any, tuple[str, str, Reader]] = {  # function: its name, the operation, the reader
    F.linear: ("F.linear", "matmul", read_linear),
    torch.matmul: ("torch.matmul", "matmul", read_matmul),
    torch.mm: ("torch.mm", "matmul", read_matmul),
    Tensor.matmul: ("Tensor.matmul", "matmul", read_matmul),
    Tensor.mm: ("Tensor.mm", "matmul", read_matmul),
    Tensor.__matmul__: ("@", "matmul", read_matmul),
    torch.addmm: ("torch.addmm", "matmul", read_addmm),
    F.layer_norm: ("F.layer_norm", "layernorm", read_layer_norm),
    torch.layer_norm: ("torch.layer_norm", "layernorm", read_layer_norm),
    F.rms_norm: ("F.rms_norm", "rmsnorm", read_rms_norm),
    torch.rms_norm: ("torch.rms_norm", "rmsnorm", read_rms_norm),
    F.softmax: ("F.softmax", "softmax", read_softmax),
    torch.softmax: ("torch.softmax", "softmax", read_torch_softmax),
    Tensor.softmax: ("Tensor.softmax", "softmax", read_torch_softmax),
    F.cross_entropy: ("F.cross_entropy", "cross_entropy", read_cross_entropy),
    F.scaled_dot_product_attention: ("F.scaled_dot_product_attention", "flash_attention", read_attention),
    torch.sum: ("torch.sum", "reduce", read_sum),
    Tensor.sum: ("Tensor.sum", "reduce", read_sum),
}

# Modules whose whole forward is one of these functions: it is read without a mode around it.
DIRECT: Mapping[Any, tuple[Any, Callable[[Any, Tensor], tuple[Any, ...]]]] = {
    nn.Linear.forward: (F.linear, lambda module, x: (x, module.weight, module.bias)),
    nn.LayerNorm.forward: (
        F.layer_norm,
        lambda module, x: (x, module.normalized_shape, module.weight, module.bias, module.eps),
    ),
    nn.RMSNorm.forward: (F.rms_norm, lambda module, x: (x, module.normalized_shape, module.weight, module.eps)),
}


def read_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Request | str:
    """Read a call of one of `FUNCTIONS`."""
    reader = FUNCTIONS[function][2]
    try:
        return reader(*args, **kwargs)
    except (TypeError, AttributeError, IndexError):
        return "arguments that no kernel takes"  # such as out=
