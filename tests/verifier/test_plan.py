"""Which cases a spec gives rise to: nothing that callers may pass is left out."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from autokernel import ops
from autokernel.ops.spec import Case, KernelSpec, Shape, dtype_named
from autokernel.verdict import Stage
from autokernel.verifier.layouts import BATCH_LAYOUTS, LAYOUTS
from autokernel.verifier.plan import DRAWN_SHAPES, drawn_shapes, fill_names, plan

NAMES = ops.names()


def everything(cases_by_stage: dict[Stage, list[Case]]) -> list[Case]:
    return [case for cases in cases_by_stage.values() for case in cases]


def made(spec: KernelSpec, shape: Shape) -> tuple[torch.Tensor, ...]:
    return spec.make_inputs(shape, dtype_named(spec.dtypes[0]), torch.Generator())


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_come_in_order_and_none_is_empty(name):
    stages = plan(ops.get(name))

    assert list(stages) == list(Stage)
    assert all(stages.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_sweep_tries_every_shape_in_every_dtype(name):
    spec = ops.get(name)

    tried = {(tuple(case.shape.items()), case.dtype) for case in plan(spec)[Stage.SWEEP]}

    assert tried >= {(tuple(shape.items()), dtype) for shape in spec.shapes for dtype in spec.dtypes}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_every_layout_appears_in_the_sweep(name):
    spec = ops.get(name)

    sweep = plan(spec)[Stage.SWEEP]

    assert all(any(dict(case.options) == dict(option) for case in sweep) for option in spec.options)
    assert {case.layout for case in sweep} == set(LAYOUTS if spec.strided_inputs else ["contiguous"])
    batches = {case.layout for case in plan(spec)[Stage.EDGE]} - {"contiguous"}
    inputs = [value for shape in (*spec.shapes, *spec.edge_shapes) for value in made(spec, shape)]
    assert batches == (set(BATCH_LAYOUTS) if any(value.dim() > 2 for value in inputs) else set())


@pytest.mark.parametrize("name", NAMES)
def test_every_fill_appears_in_the_stability_stage_in_the_widest_dtype(name):
    spec = ops.get(name)

    stability = plan(spec)[Stage.STABILITY]

    widest = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    assert {case.fill for case in stability if case.dtype == widest} == set(fill_names(spec))
    narrow = set(spec.dtypes) - {"float32"}
    if narrow:
        assert {case.fill for case in stability if case.dtype in narrow} == set(fill_names(spec))


@pytest.mark.parametrize("name", NAMES)
def test_the_edge_stage_tries_sizes_that_no_power_of_two_above_two_divides(name):
    sizes = {size for case in plan(ops.get(name))[Stage.EDGE] for size in case.shape.values()}

    assert 1 in sizes
    assert any(size > 1 and size % 2 for size in sizes)


@pytest.mark.parametrize("name", NAMES)
def test_no_case_is_tried_twice_in_a_stage(name):
    for cases in plan(ops.get(name)).values():
        labels = [case.label for case in cases]
        assert len(labels) == len(set(labels))


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_drawn_that_no_table_lists_and_others_for_another_seed(name):
    spec = ops.get(name)

    first, second = drawn_shapes(spec, 1), drawn_shapes(spec, 2)

    listed = [dict(shape) for shape in (*spec.shapes, *spec.large_shapes, *(spec.edge_shapes or ()))]
    assert len(first) == len(second) == DRAWN_SHAPES
    assert not any(dict(shape) in listed for shape in first + second)
    assert first != second
    assert drawn_shapes(spec, 1) == first
    drawn = [case.shape for case in plan(spec, seed=1)[Stage.EDGE]]
    assert all(shape in drawn for shape in first)


def test_drawn_sizes_keep_what_the_listed_ones_have_in_common():
    sizes = [shape["D"] for seed in range(20) for shape in drawn_shapes(ops.get("rotary_embedding"), seed)]

    assert all(size % 2 == 0 for size in sizes), "an odd head size has no pairs"


def test_the_targets_dtype_is_tried_first():
    spec = ops.get("rmsnorm")

    for dtype in spec.dtypes:
        stages = plan(spec, dtype=dtype)
        assert stages[Stage.SMOKE][0].dtype == dtype
        assert stages[Stage.DETERMINISM][0].dtype == dtype


def test_large_shapes_are_in_the_sweep_and_in_float32_too_where_they_are_no_great_work():
    spec = ops.get("softmax")

    sweep = plan(spec)[Stage.SWEEP]

    tried = [(case.shape, case.dtype) for case in sweep if case.shape in list(spec.large_shapes)]
    assert {tuple(shape.items()) for shape, _dtype in tried} == {tuple(shape.items()) for shape in spec.large_shapes}
    assert all((shape, "float32") in tried for shape in spec.large_shapes)
    products = [case for case in plan(ops.get("matmul"))[Stage.SWEEP] if case.shape["K"] == 4096]
    assert len(products) == 2, "once for each shape"


def small_spec(**changes: object) -> KernelSpec:
    """A user's spec with nothing but what is needed: half of x, for even sizes only."""

    def reference(x):
        return x.unflatten(-1, (-1, 2)).sum(-1)

    spec = KernelSpec(
        name="pairs",
        reference=reference,
        make_inputs=lambda shape, dtype, generator: (torch_randn(shape, dtype, generator),),
        shapes=({"M": 3, "N": 8},),
    )
    return dataclasses.replace(spec, **changes)


def torch_randn(shape, dtype, generator):
    return torch.randn(shape["M"], shape["N"], generator=generator).to(dtype)


def test_edges_and_fills_are_derived_for_a_spec_that_gives_none():
    stages = plan(small_spec())

    edges = [dict(case.shape) for case in stages[Stage.EDGE]]
    assert {"M": 1, "N": 8} in edges
    assert {"M": 1023, "N": 8} in edges
    assert all(shape["N"] == 8 for shape in edges), "the operation is not defined for odd N"
    assert {"zeros_0", "large_0", "outlier_0"} <= {case.fill for case in stages[Stage.STABILITY]}


def test_a_spec_without_edges_has_an_edge_stage_all_the_same():
    never = small_spec(edge_shapes=())

    assert plan(never)[Stage.EDGE] == []
    assert everything(plan(never))


def test_an_extension_is_tried_in_every_stage_on_all_that_the_default_is_tried_on():
    stages = plan(ops.get("rotary_embedding"), seed=1)

    for stage, cases in stages.items():
        default = [case for case in cases if not case.options]
        extended = [case for case in cases if case.options == {"interleaved": False}]
        assert [dataclasses.replace(case, options={}) for case in extended] == default, stage
        assert default
