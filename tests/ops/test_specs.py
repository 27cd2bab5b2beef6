"""What holds for every operation that ships."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from autokernel import ops, starters
from autokernel.ops.spec import dtype_named
from tests.ops.judging import cases, in_float64, make_inputs, same_bytes

NAMES = ops.names()


def test_the_operations_are_there_and_each_has_a_triton_starter():
    assert NAMES == (
        "cross_entropy",
        "flash_attention",
        "fused_mlp",
        "layernorm",
        "matmul",
        "matmul_fp8",
        "matmul_w4a16",
        "reduce",
        "rmsnorm",
        "rotary_embedding",
        "softmax",
        "vectorsum",
    )
    for name in NAMES:
        source = starters.source(name, "triton")
        assert f'KERNEL_TYPE = "{name}"' in source
        assert len(source.splitlines()) <= 100


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_a_shipped_spec_is_given(name):
    spec = ops.get(name)
    assert spec.name == name
    for field in dataclasses.fields(spec):
        left_out = field.name in ("composed", "extensions")
        assert getattr(spec, field.name) not in (None, "", ()) or left_out, field.name


@pytest.mark.parametrize("name", NAMES)
def test_inputs_come_from_the_generator_alone_and_keep_their_dtypes_through_every_fill(name):
    spec = ops.get(name)
    for case in cases(spec):
        first, second = make_inputs(spec, case, seed=3), make_inputs(spec, case, seed=3)
        assert all(same_bytes(a, b) for a, b in zip(first, second, strict=True)), case.label
        plain = make_inputs(spec, dataclasses.replace(case, fill="normal"), seed=3)
        assert [(x.shape, x.dtype) for x in first] == [(x.shape, x.dtype) for x in plain], case.label
        assert not any(x.isnan().any() for x in first), case.label


@pytest.mark.parametrize("name", NAMES)
def test_golden_values_and_bounds_are_finite_and_fit_the_result_dtype(name):
    spec = ops.get(name)
    for case in cases(spec):
        inputs = make_inputs(spec, case)
        exact = in_float64(inputs)
        golden = spec.reference(*exact, **case.options)
        assert golden.dtype == torch.float64, case.label
        assert golden.isfinite().all() or case.fill == "all_ignored", case.label
        if golden.isfinite().all():
            for result in spec.dtypes_of_result(inputs, case.options):
                assert golden.abs().max() < torch.finfo(dtype_named(result)).max, case.label
        magnitude = spec.magnitude(*exact, **case.options)
        for size in (magnitude.accumulated, magnitude.rounded):
            assert size is None or (size.isfinite().all() and (size >= 0).all()), case.label
            assert size is None or torch.broadcast_shapes(size.shape, golden.shape) == golden.shape, case.label


@pytest.mark.parametrize("name", NAMES)
def test_small_shapes_fit_the_interpreter(name):
    spec = ops.get(name)
    for shape in (*spec.shapes, *spec.edge_shapes):
        inputs = spec.make_inputs(shape, dtype_named(spec.dtypes[-1]), torch.Generator())
        assert max(x.numel() for x in inputs) <= 60_000, shape


@pytest.mark.parametrize("name", NAMES)
def test_costs_are_at_least_one_pass_over_inputs_and_output(name):
    spec = ops.get(name)
    for shape in (*spec.shapes, *spec.edge_shapes):
        dtype = dtype_named(spec.dtypes[-1])
        inputs = spec.make_inputs(shape, dtype, torch.Generator())
        results = [dtype_named(name) for name in spec.dtypes_of_result(inputs, {})]
        written = max(result.itemsize for result in results) * spec.reference(*in_float64(inputs)).numel()
        moved = sum(x.numel() * x.element_size() for x in inputs) + written
        assert spec.bytes_moved(shape, dtype.itemsize) == moved, shape
        assert spec.flops(shape) > 0
        assert spec.reduction_length(shape) >= 1
