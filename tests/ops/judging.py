"""How the tests of the operations judge a result: error against float64, over a bound per element.

The bound is the verifier's formula, with factors that are nowhere wider than the verifier's:

    ULPS * ulp(golden) + SUM * sqrt(reduction_length) * 2**-24 * accumulated + ROUND * u * rounded
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from autokernel.ops.spec import Case, KernelSpec, Magnitude, dtype_named

ULPS = {torch.float16: 2.0, torch.bfloat16: 2.0, torch.float32: 4.0}
SUM = 3.0
ROUND = 4.0


def ulp(golden: Tensor, dtype: torch.dtype) -> Tensor:
    """The gap between neighbouring numbers of ``dtype`` at each golden value."""
    facts = torch.finfo(dtype)
    exponent = torch.floor(torch.log2(golden.abs().clamp(min=facts.tiny)))
    return torch.exp2(exponent) * facts.eps


def bound(spec: KernelSpec, case: Case, golden: Tensor, magnitude: Magnitude, result_dtype: torch.dtype) -> Tensor:
    assert spec.reduction_length is not None
    unit_roundoff = torch.finfo(dtype_named(case.dtype)).eps / 2
    limit = ULPS[result_dtype] * ulp(golden, result_dtype)
    limit = limit + SUM * math.sqrt(spec.reduction_length(case.shape)) * 2.0**-24 * magnitude.accumulated
    if magnitude.rounded is not None:
        limit = limit + ROUND * unit_roundoff * magnitude.rounded
    return limit


def make_inputs(spec: KernelSpec, case: Case, seed: int = 0) -> tuple[Tensor, ...]:
    """The case's inputs: normal, then filled, then laid out."""
    generator = torch.Generator().manual_seed(seed)
    inputs = spec.make_inputs(case.shape, dtype_named(case.dtype), generator)
    if case.fill != "normal":
        assert spec.fills is not None
        inputs = spec.fills[case.fill](inputs, case.shape, generator)
    strided = set(spec.strided_inputs) if case.layout != "contiguous" else set()
    return tuple(laid_out(value, case.layout) if i in strided else value for i, value in enumerate(inputs))


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same values as a view: ``stepped`` (every other column), ``transposed`` (storage), ``padded`` (rows)."""
    gap = float("nan") if x.is_floating_point() else torch.iinfo(x.dtype).max
    if layout == "stepped":
        view = torch.full((*x.shape[:-1], 2 * x.shape[-1]), gap, dtype=x.dtype)[..., ::2]
    elif layout == "padded":
        view = torch.full((*x.shape[:-1], x.shape[-1] + 3), gap, dtype=x.dtype)[..., 1:-2]
    elif x.dim() < 2:
        return x
    else:
        view = torch.empty(x.transpose(-1, -2).shape, dtype=x.dtype).transpose(-1, -2)
    view.copy_(x)
    return view


def in_float64(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.double() if value.is_floating_point() else value for value in inputs)


def error_over_bound(spec: KernelSpec, case: Case, inputs: tuple[Tensor, ...], result: Tensor) -> float:
    """The largest ratio of error to bound; infinite for a wrong shape, dtype, NaN or infinity."""
    exact = in_float64(inputs)
    golden = spec.reference(*exact, **case.options)
    accepted = {dtype_named(name) for name in spec.dtypes_of_result(inputs, case.options)}
    if result.shape != golden.shape or result.dtype not in accepted:
        return math.inf
    assert spec.magnitude is not None
    limit = bound(spec, case, golden, spec.magnitude(*exact, **case.options), result.dtype).expand(golden.shape)
    actual = result.double()
    same = (actual == golden) | (actual.isnan() & golden.isnan())
    ratio = torch.where(same, 0.0, (actual - golden).abs() / limit)
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max())


def judge(spec: KernelSpec, case: Case, kernel_fn: Callable[..., Tensor], seed: int = 0) -> float:
    """Run ``kernel_fn`` on the case and return the error over the bound; inputs must come back as they were."""
    inputs = make_inputs(spec, case, seed)
    before = [value.clone() for value in inputs]
    result = kernel_fn(*inputs, **case.options)
    for value, old in zip(inputs, before, strict=True):
        assert same_bytes(value, old), "the kernel changed its inputs"
    return error_over_bound(spec, case, inputs, result)


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same values, bit by bit."""
    first, second = (value.contiguous().reshape(-1).view(torch.uint8) for value in (one, other))
    return torch.equal(first, second)


def cases(spec: KernelSpec, *, every_dtype: bool = True) -> Iterator[Case]:
    """Every small and edge shape, option, fill and layout, one after another; fills in each dtype, or in turns.

    Those of an extension follow, with the edge shapes and one dtype for each fill.
    """
    dtypes = list(spec.dtypes)
    last, widest = spec.shapes[-1], max(dtypes, key=lambda name: dtype_named(name).itemsize)
    yield from (Case(shape=shape, dtype=dtype) for shape in spec.shapes for dtype in dtypes)
    edges = spec.edge_shapes or ()
    yield from (Case(shape=shape, dtype=dtypes[i % len(dtypes)]) for i, shape in enumerate(edges))
    yield from (Case(shape=last, dtype=dtype, options=options) for options in spec.options[1:] for dtype in dtypes)
    for i, fill in enumerate(spec.fills or {}):
        turn = dtypes if every_dtype else [dtypes[i % len(dtypes)]]
        yield from (Case(shape=last, dtype=dtype, fill=fill) for dtype in turn)
    layouts = ("stepped", "padded", "transposed")
    yield from (Case(shape=last, dtype=widest, layout=layout) for layout in layouts)
    for options in spec.extensions:
        yield from (Case(shape=shape, dtype=dtype, options=options) for shape in spec.shapes for dtype in dtypes)
        for i, shape in enumerate(edges):
            yield Case(shape=shape, dtype=dtypes[i % len(dtypes)], options=options)
        yield from (Case(shape=last, dtype=widest, fill=fill, options=options) for fill in spec.fills or {})


def worst(spec: KernelSpec, kernel_fn: Callable[..., Tensor], chosen: Iterable[Case] | None = None) -> float:
    """The largest error over its bound, over the chosen cases, or all."""
    return max(judge(spec, case, kernel_fn) for case in (cases(spec) if chosen is None else chosen))


def filled(spec: KernelSpec, fill: str, dtype: str = "float32", **options: Any) -> Case:
    """The spec's last shape, which the stability stage uses, with the values of ``fill``."""
    return Case(shape=spec.shapes[-1], dtype=dtype, fill=fill, options=options)


def as_tf32(x: Tensor) -> Tensor:
    """float32 rounded to the 10 stored bits of significand that a tensor core keeps of it."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
