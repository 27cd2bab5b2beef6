"""Inputs of eight bits (float8, packed integers) are judged as strictly as others are."""

from __future__ import annotations

import pytest
import torch

from autokernel import ops, starters
from autokernel.errors import InvalidSpec, UsageError
from autokernel.ops import fills
from autokernel.ops.spec import Case, KernelSpec
from autokernel.runner.repeated import amend, change
from autokernel.verdict import Stage, Verdict
from autokernel.verifier.golden import Golden, compare, ulp
from autokernel.verifier.layouts import LAYOUTS, lay_out
from autokernel.verifier.selftest import check_spec
from autokernel.verifier.trial import make_case_inputs
from tests.evaluating import shared_evaluator
from tests.planting import needs_compiler

E4M3_NAME = "float8_e4m3fn"
E4M3 = torch.float8_e4m3fn
REMEMBERS = """

right, remembered = kernel_fn, {}


def kernel_fn(x, weights, *others, **options):
    key = weights.data_ptr(), weights.shape
    return right(x, remembered.setdefault(key, weights.clone()), *others, **options)
"""


def bits(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def made(dtype: torch.dtype, *size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if dtype.is_floating_point:
        return torch.randn(size, generator=generator).to(dtype)
    return torch.randint(0, 100, size, generator=generator).to(dtype)


def verified(source: str, name: str, *stages: Stage) -> Verdict:
    return shared_evaluator(name).verify(source, stages=list(stages) or None)


# Changes in place


@pytest.mark.parametrize("dtype", [E4M3, torch.uint8, torch.int8])
def test_one_element_in_each_block_becomes_another_of_its_block(dtype):
    value = made(dtype, 6, 512)
    before = value.clone()

    for seed in range(4):
        change([value], seed)

    moved = (bits(value) != bits(before)).reshape(-1, 256)
    assert (moved.sum(dim=1) <= 4).all()
    assert moved.any(dim=1).float().mean() > 0.8  # an element may become its equal
    for new, old in zip(bits(value).reshape(-1, 256), bits(before).reshape(-1, 256), strict=True):
        assert set(new.tolist()) <= set(old.tolist())


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64])
def test_what_may_be_an_index_or_a_mask_stays_as_it_is(dtype):
    value = made(dtype, 6, 512)
    before = value.clone()

    change([value], 1)

    assert torch.equal(value, before)


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
@pytest.mark.parametrize("dtype", [E4M3, torch.uint8, torch.int64])
def test_single_elements_are_overwritten_in_any_layout(dtype, layout):
    (value,) = lay_out([made(dtype, 5, 9)], layout, [0])
    expected = value.contiguous().clone()
    places = torch.tensor([0, 13, 44])
    expected.view(-1)[places] = made(dtype, 3)

    amend(value, places, made(dtype, 3))

    assert torch.equal(bits(value), bits(expected))


# Values


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_a_fill_of_whole_numbers_is_rounded_and_stays_in_range(dtype):
    value = made(dtype, 4, 8)

    (halved,) = fills.scaled(0, 0.5)((value,), {}, torch.Generator())
    (huge,) = fills.scaled(0, -1e30)((value,), {}, torch.Generator())

    assert halved.dtype == huge.dtype == dtype
    assert torch.equal(halved.double(), (value.double() / 2).round())
    assert huge.min() == torch.iinfo(dtype).min


def test_a_float8_result_may_be_two_steps_off_and_no_more():
    right = Golden(torch.full((4,), 3.3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64), lambda: right.value)

    assert ulp(right.value, E4M3).tolist() == [0.25] * 4
    assert compare(torch.full((4,), 3.75).to(E4M3), right).agrees
    assert not compare(torch.full((4,), 4.0).to(E4M3), right).agrees


def test_a_users_operation_on_float8_needs_a_baseline_and_no_more_than_any_other_besides():
    def make_inputs(shape, dtype, generator):
        return (torch.randn(shape["M"], shape["N"], generator=generator).to(dtype),)

    def spec(**more):
        shapes = ({"M": 4, "N": 9}, {"M": 5, "N": 16})
        return KernelSpec(
            name="doubled",
            reference=lambda x: 2 * x,
            make_inputs=make_inputs,
            shapes=shapes,
            dtypes=[E4M3_NAME],
            **more,
        )

    with pytest.raises(InvalidSpec, match=r"'doubled' has no baseline.* in float8_e4m3fn; give a baseline"):
        spec()
    check_spec(spec(baseline=lambda x: (2 * x.float()).to(x.dtype)), "cpu")


def test_the_dtype_of_a_result_follows_from_input_or_option_or_is_fixed():
    spec = ops.get("matmul_fp8")
    inputs = spec.make_inputs(spec.shapes[0], E4M3, torch.Generator())

    assert spec.dtypes_of_result(inputs, {}) == {"bfloat16"}
    assert spec.dtypes_of_result(inputs, {"out_dtype": "float16"}) == {"float16"}
    assert ops.get("cross_entropy").dtypes_of_result([torch.zeros(1, dtype=torch.half)], {}) == {"float16", "float32"}
    assert ops.get("vectorsum").dtypes_of_result([torch.zeros(1, dtype=torch.half)], {}) == {"float32"}


# Kernels


@needs_compiler
@pytest.mark.parametrize("name", ["matmul_w4a16", "matmul_fp8"])
def test_weights_that_are_remembered_by_their_address_are_found(name):
    verdict = verified(starters.source(name, "cpp") + REMEMBERS, name, Stage.SMOKE, Stage.DETERMINISM)

    assert verdict.failed_stage is Stage.DETERMINISM


def test_sizes_for_which_an_operation_is_not_defined_are_refused_with_the_reason():
    case = Case(shape={"M": 4, "N": 8, "K": 64, "G": 24}, dtype="float16")

    with pytest.raises(UsageError, match=r"not defined for M=4 N=8 K=64 G=24 float16: the group size G=24 must be"):
        make_case_inputs(ops.get("matmul_w4a16"), case, 1, "cpu")


@needs_compiler
def test_a_result_in_another_dtype_than_the_option_says_is_refused():
    source = starters.source("matmul_fp8", "cpp").replace("getattr(torch, out_dtype)", "torch.bfloat16")

    verdict = verified(source, "matmul_fp8", Stage.SMOKE, Stage.SWEEP)

    assert verdict.failed_stage is Stage.SWEEP
    assert "the output has dtype bfloat16, expected float16" in verdict.reason


@needs_compiler
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("matmul_fp8", "A.contiguous()", "A.as_strided(A.shape, (A.shape[1], 1))"),
        ("matmul_fp8", "std::ldexp(float(significand), -9)", "0.0f"),
        ("matmul_w4a16", "group * group_size / 2; i <", "group * 32 / 2; i <"),
        ("vectorsum", "for (; i < n; ++i) sum += to_float(x[i]);", ""),
    ],
    ids=["strides", "subnormal values", "the group's size", "the tail"],
)
def test_a_kernel_that_neglects_something_is_rejected(name, old, new):
    source = starters.source(name, "cpp").replace("LANES = 1 ", "LANES = 16 ")
    assert old in source

    verdict = verified(source.replace(old, new), name)

    assert not verdict.accepted


@needs_compiler
@pytest.mark.parametrize("name", ["matmul_fp8", pytest.param("matmul_w4a16", marks=pytest.mark.thorough)])
def test_a_starter_is_verified_and_timed(name):
    with_lanes = starters.source(name, "cpp").replace("LANES = 1 ", "LANES = 16 ")
    evaluator = shared_evaluator(name)

    evaluation = evaluator.evaluate(with_lanes)

    assert evaluation.verdict.accepted, evaluation.verdict.reason
    assert evaluation.measurement is not None


def test_a_case_names_its_float8():
    assert Case(shape={"M": 1}, dtype=E4M3_NAME).label == "M=1 float8_e4m3fn"
