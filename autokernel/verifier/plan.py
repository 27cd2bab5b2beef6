"""Which cases each verification stage tries, for one spec."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import torch

from autokernel.ops import fills
from autokernel.ops.spec import Case, KernelSpec, Shape, dtype_named
from autokernel.verdict import Stage
from autokernel.verifier.layouts import BATCH_LAYOUTS, LAYOUTS

__all__ = ["determinism_cases", "drawn_shapes", "edge_cases", "plan", "smoke_cases", "stability_cases", "sweep_cases"]


DRAWN_SHAPES = 3
# Up to this product of sizes a large shape is tried in float32 too, which shows errors that half-width dtypes hide.
_WIDE_VOLUME = 4 << 20


def plan(spec: KernelSpec, *, dtype: str | None = None, seed: int | None = None) -> dict[Stage, list[Case]]:
    """Return the cases of each stage, in order; those of the spec's extensions follow those of the default.

    Args:
        spec: The operation.
        dtype: The dtype of the target, tried first and most; the spec's first when None.
        seed: Sizes that no table lists are drawn from it for the edge stage; none when None.
    """
    dtypes = _ordered(spec, dtype)
    stages = {
        Stage.SMOKE: smoke_cases(spec, dtypes),
        Stage.SWEEP: sweep_cases(spec, dtypes),
        Stage.STABILITY: stability_cases(spec, dtypes),
        Stage.DETERMINISM: determinism_cases(spec, dtypes),
        Stage.EDGE: edge_cases(spec, dtypes, [] if seed is None else drawn_shapes(spec, seed)),
    }
    return {stage: [*cases, *_extended(spec, cases)] for stage, cases in stages.items()}


def _extended(spec: KernelSpec, cases: Sequence[Case]) -> list[Case]:
    """The same cases for each of the spec's extensions."""
    return [
        dataclasses.replace(case, options={**case.options, **extension})
        for extension in spec.extensions
        for case in cases
    ]


def _ordered(spec: KernelSpec, dtype: str | None) -> list[str]:
    first = dtype or spec.dtypes[0]
    return [first, *[name for name in spec.dtypes if name != first]]


def smoke_cases(spec: KernelSpec, dtypes: Sequence[str]) -> list[Case]:
    """One small case: does it run at all?"""
    return [Case(shape=spec.shapes[0], dtype=dtypes[0])]


def sweep_cases(spec: KernelSpec, dtypes: Sequence[str]) -> list[Case]:
    """Every shape in every dtype, every option, every layout."""
    options = list(spec.options)
    cases = []
    for row, shape in enumerate(spec.shapes):
        for column, dtype in enumerate(dtypes):
            cases.append(Case(shape=shape, dtype=dtype, options=options[(row + column) % len(options)]))
    for number, option in enumerate(options):
        for shape in spec.shapes[-2:]:
            cases.append(Case(shape=shape, dtype=dtypes[number % len(dtypes)], options=option))
    view_shape = spec.shapes[min(1, len(spec.shapes) - 1)]
    for number, layout in enumerate(LAYOUTS[1:]):
        if spec.strided_inputs:
            cases.append(Case(shape=view_shape, dtype=dtypes[number % len(dtypes)], layout=layout))
    for number, shape in enumerate(spec.large_shapes):
        cases.append(Case(shape=shape, dtype=dtypes[number % len(dtypes)]))
        if "float32" in dtypes and math.prod(shape.values()) <= _WIDE_VOLUME:
            cases.append(Case(shape=shape, dtype="float32"))
    return _distinct(cases)


def _batch_shape(spec: KernelSpec) -> Shape | None:
    """The first shape for which a strided input has three dimensions, with rows to be moved apart."""
    generator = torch.Generator().manual_seed(0)
    for shape in (*spec.shapes, *(spec.edge_shapes or ())):
        inputs = spec.make_inputs(shape, dtype_named(spec.dtypes[0]), generator)
        for index in spec.strided_inputs:
            size = inputs[index].shape
            if len(size) > 2 and min(size[-3:]) > 1:
                return shape
    return None


def stability_cases(spec: KernelSpec, dtypes: Sequence[str]) -> list[Case]:
    """Every value pattern, in float32 (or the widest dtype) and in one half-width dtype by turns."""
    wide = [name for name in dtypes if name == "float32"] or [dtypes[0]]
    narrow = [name for name in dtypes if name != "float32"]
    shape = spec.shapes[-1]
    options = list(spec.options)
    cases = []
    for number, name in enumerate(fill_names(spec)):
        for dtype in [*wide, *narrow[number % len(narrow) :][:1]] if narrow else wide:
            cases.append(Case(shape=shape, dtype=dtype, fill=name))
        if number < len(options) and options[number]:
            cases.append(Case(shape=shape, dtype=wide[0], fill=name, options=options[number]))
    return _distinct(cases)


def determinism_cases(spec: KernelSpec, dtypes: Sequence[str]) -> list[Case]:
    """Cases whose result must be the same, bit by bit, each time."""
    cases = [Case(shape=spec.shapes[-1], dtype=dtypes[0]), Case(shape=spec.shapes[0], dtype=dtypes[-1])]
    cases += [Case(shape=shape, dtype=dtypes[0]) for shape in spec.large_shapes[:1]]
    return _distinct(cases)


def edge_cases(spec: KernelSpec, dtypes: Sequence[str], drawn: Sequence[Shape] = ()) -> list[Case]:
    """Sizes that no block divides, sizes that were drawn, which no kernel can know beforehand, and batches of rows."""
    shapes = [*(spec.edge_shapes if spec.edge_shapes is not None else _derived_edges(spec)), *drawn]
    options = list(spec.options)
    cases = [
        Case(shape=shape, dtype=dtypes[number % len(dtypes)], options=options[number % len(options)])
        for number, shape in enumerate(shapes)
    ]
    batch_shape = _batch_shape(spec)
    if batch_shape is not None:
        for number, layout in enumerate(BATCH_LAYOUTS):
            cases.append(Case(shape=batch_shape, dtype=dtypes[number % len(dtypes)], layout=layout))
    return _distinct(cases)


def drawn_shapes(spec: KernelSpec, seed: int) -> list[Shape]:
    """Draw small shapes that the spec does not list.

    A size is a multiple of the greatest common divisor of all that the spec lists for it, so that an
    even head size stays even, and no larger than the largest of ``spec.shapes``.
    """
    order = random.Random(seed)
    listed = (*spec.shapes, *spec.large_shapes, *(spec.edge_shapes or ()))
    known = [dict(shape) for shape in listed]
    largest = max(math.prod(shape.values()) for shape in spec.shapes)
    drawn: list[Shape] = []
    for _attempt in range(20 * DRAWN_SHAPES):
        shape = {}
        for name in spec.shapes[0]:
            step = math.gcd(*[sizes[name] for sizes in known if name in sizes])
            shape[name] = step * order.randint(1, max(sizes[name] for sizes in spec.shapes if name in sizes) // step)
        if shape not in known and math.prod(shape.values()) <= largest and _is_defined(spec, shape):
            drawn.append(shape)
            known.append(shape)
        if len(drawn) == DRAWN_SHAPES:
            break
    return drawn


def fill_names(spec: KernelSpec) -> list[str]:
    """The names of the spec's value patterns, given or derived."""
    if spec.fills is not None:
        return list(spec.fills)
    generator = torch.Generator().manual_seed(0)
    return list(fills.derived(spec.make_inputs(spec.shapes[0], dtype_named(spec.dtypes[0]), generator)))


def _derived_edges(spec: KernelSpec) -> list[Shape]:
    """For each size in turn 1, a size below and one above a power of two, the others kept small."""
    base = dict(spec.shapes[0])
    shapes: list[Shape] = []
    for name in base:
        for size in (1, 127, 1023, 4097):
            shapes.append({**base, name: size})
    return [shape for shape in shapes if _is_defined(spec, shape)]


def _is_defined(spec: KernelSpec, shape: Shape) -> bool:
    """Whether the operation is defined for these sizes (an odd head size may be none)."""
    generator = torch.Generator().manual_seed(0)
    try:
        inputs = spec.make_inputs(shape, dtype_named(spec.dtypes[0]), generator)
        spec.reference(*[x.double() if x.is_floating_point() else x for x in inputs])
    except Exception:
        return False
    return True


def _distinct(cases: Sequence[Case]) -> list[Case]:
    return list({case.label: case for case in cases}.values())
