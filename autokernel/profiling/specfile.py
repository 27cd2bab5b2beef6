"""The text of a spec file for a captured module: its traced operators as plain Python."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from autokernel.errors import UsageError
from autokernel.ops.spec import DTYPES
from autokernel.profiling.masks import mask_kind

__all__ = ["write"]

_MOST_CONSTANT = 4096  # elements of a constant tensor that is written into the file

_HEAD = '''"""{title}: the module {path} of a model, captured from one of its calls.

Inputs are the module's arguments, then its parameters and buffers.  Sizes and dtype are those of the call;
the operators were traced with these, so no others are tried.
"""

import torch

from autokernel.ops import KernelSpec

aten = torch.ops.aten


def cast(x, dtype, like):
    """To the dtype that the model casts to; float64 stays, so that the reference is exact."""
    if not x.is_floating_point() or not dtype.is_floating_point:
        return x.to(dtype)
    if x.dtype == torch.float64 or like.dtype == torch.float64:
        return x.double()
    return x.to(dtype)
'''

_TAIL = """

def make_inputs(shape, dtype, generator):
    device = generator.device

    def normal(sizes, mean, std):
        return (torch.randn(sizes, generator=generator, device=device) * std + mean).to(dtype)

    def integers(sizes, low, high, kind):
        return torch.randint(low, high + 1, sizes, generator=generator, device=device).to(kind)

    return (
{inputs}
    )


SPEC = KernelSpec(
    name="{title}",
    description="{path} as the model calls it",
    signature="({names})",
    reference=reference,
    baseline=baseline,
    make_inputs=make_inputs,
    shapes=({shape},),
    edge_shapes=(),
    timing_shapes=({shape},),
    dtypes={dtypes},
    flops=lambda shape: {flops!r},
    strided_inputs=(),
    result_dtypes=("input", "float32"),
)
"""


def write(
    title: str,
    path: str,
    names: list[str],
    tensors: list[Tensor],
    output: Tensor,
    baseline: GraphModule,
    reference: GraphModule,
) -> str:
    """Return the file's text.

    Args:
        title: Name of the spec.
        path: Of the module in the model.
        names: Of the inputs.
        tensors: Their values in the captured call.
        output: What the module returned.
        baseline: The trace with the model's own operators.
        reference: The trace that also computes in float64.

    Raises:
        UsageError: The trace holds something that has no text.
    """
    main = next((one.dtype for one in tensors if one.is_floating_point()), None)
    if main is None:
        raise UsageError(f"the module {path!r} has no floating-point input or parameter, so it is no operation")
    first = names[next(i for i, one in enumerate(tensors) if one.is_floating_point())]
    dtype = str(main).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UsageError(f"the module {path!r} computes in {dtype}; an operation has {', '.join(DTYPES)}")
    text = _HEAD.format(title=title, path=path)
    for name, traced in (("reference", reference), ("baseline", baseline)):
        text += "\n\n" + _function(name, traced, names, first)
    return text + _TAIL.format(
        title=title,
        path=path,
        names=", ".join(names),
        inputs="\n".join(f"        {_drawn(one)}," for one in tensors),
        shape={f"N{place}": size for place, size in enumerate(output.shape)} or {"N0": 1},
        dtypes=(dtype,),
        flops=_flops(baseline),
    )


def _function(name: str, traced: GraphModule, names: list[str], first: str) -> str:
    lines = [f"def {name}({', '.join(names)}):"]
    words: dict[Node, str] = {}
    inputs = iter(names)
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            words[node] = next(inputs)
        elif node.op == "get_attr":
            words[node] = f"constant_{len(words)}"
            lines.append(f"    {words[node]} = {_constant(getattr(traced, node.target), first)}")
        elif node.op == "call_function":
            words[node] = f"v{len(words)}"
            lines.append(f"    {words[node]} = {_call(node, words, first)}")
        elif node.op == "output":
            result = node.args[0][0] if isinstance(node.args[0], (list, tuple)) else node.args[0]
            lines.append(f"    return {words[result]}")
    return "\n".join(lines) + "\n"


def _call(node: Node, words: dict[Node, str], first: str) -> str:
    if node.target is operator.getitem:
        return f"{words[node.args[0]]}[{node.args[1]}]"  # type: ignore[index]
    if not isinstance(node.target, torch._ops.OpOverload):
        raise UsageError(f"the module computes with {node.target}, which cannot be written as text")
    schema, overload = node.target._schema, node.target._overloadname
    namespace, name = schema.name.split("::")
    if name == "_to_copy" and isinstance(node.kwargs.get("dtype"), torch.dtype):
        return f"cast({words[node.args[0]]}, {node.kwargs['dtype']}, {first})"  # type: ignore[index]
    home = "aten" if namespace == "aten" else f"torch.ops.{namespace}"
    arguments = [_literal(value, words, first) for value in node.args]
    for key, value in node.kwargs.items():
        if key != "pin_memory":
            arguments.append(f"{key}={_literal(value, words, first)}")
    return f"{home}.{name}.{overload}({', '.join(arguments)})"


def _literal(value: Any, words: dict[Node, str], first: str) -> str:
    if isinstance(value, Node):
        return words[value]
    if isinstance(value, torch.device):
        return f"{first}.device"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item, words, first) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.layout, torch.memory_format)):
        return repr(value)
    raise UsageError(f"the module computes with {value!r}, which cannot be written as text")


def _constant(tensor: Tensor, first: str) -> str:
    if tensor.numel() > _MOST_CONSTANT:
        raise UsageError(
            f"the module uses a constant tensor of {tensor.numel()} elements that is no buffer; "
            "register it with register_buffer"
        )
    values = repr(tensor.tolist()).replace("-inf", 'float("-inf")').replace(" inf", ' float("inf")')
    return f"torch.tensor({values}, dtype={tensor.dtype}, device={first}.device)"


def _drawn(tensor: Tensor) -> str:
    """An expression that makes an input with the captured one's sizes, and values of its size."""
    sizes = tuple(tensor.shape)
    if tensor.dtype == torch.bool:
        if mask_kind(tensor, inverted=False) == "causal":
            return f"torch.ones({sizes}, dtype=torch.bool, device=device).tril()"
        return f"torch.full({sizes}, {bool(tensor.any())}, device=device)"
    if not tensor.is_floating_point():
        low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
        return f"integers({sizes}, {low}, {high}, {tensor.dtype})"
    if mask_kind(tensor, inverted=False) == "causal":
        return f'torch.full({sizes}, float("-inf"), device=device).triu(1).to(dtype)'
    values = tensor.double()
    finite = values[values.isfinite() & (values.abs() < 1e4)]
    mean = float(finite.mean()) if finite.numel() else 0.0
    std = float(finite.std(correction=0)) if finite.numel() else 0.0
    return f"normal({sizes}, {mean:.4g}, {std:.4g})"


def _flops(traced: GraphModule) -> float:
    """FLOP of the matrix products in the trace."""
    total = 0.0
    for node in traced.graph.nodes:
        name = getattr(getattr(node.target, "_schema", None), "name", "")
        made = node.meta.get("val", node.meta.get("tensor_meta"))
        if name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm") and hasattr(made, "shape"):
            left = node.args[1 if name.endswith("addmm") or name.endswith("baddbmm") else 0]
            inner = left.meta.get("val", left.meta.get("tensor_meta"))
            total += 2.0 * math.prod(made.shape) * inner.shape[-1]
    return total
