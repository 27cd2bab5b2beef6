"""A spec is tested before it is trusted: wrong answers must fail on it."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from autokernel import ops
from autokernel.errors import InvalidSpec
from autokernel.evaluator import Evaluator
from autokernel.ops.spec import KernelSpec, Magnitude
from autokernel.verifier.selftest import check_spec


def make_inputs(shape, dtype, generator):
    return (torch.randn(shape["M"], shape["N"], generator=generator).to(dtype),)


SOUND = KernelSpec(
    name="doubled", reference=lambda x: x * 2, make_inputs=make_inputs, shapes=({"M": 4, "N": 9}, {"M": 5, "N": 16})
)


@pytest.mark.parametrize("name", ops.names())
def test_every_shipped_spec_passes_its_own_test(name):
    check_spec(ops.get(name), "cpu")


def test_a_sound_spec_of_three_fields_passes():
    check_spec(SOUND, "cpu")


def test_a_spec_whose_result_is_always_zero_is_refused():
    with pytest.raises(InvalidSpec, match="'doubled'.*returns zeros.*make the inputs more varied"):
        check_spec(dataclasses.replace(SOUND, reference=lambda x: x * 0), "cpu")


def test_a_spec_that_returns_its_input_is_refused():
    with pytest.raises(InvalidSpec, match="returns its input"):
        check_spec(dataclasses.replace(SOUND, reference=lambda x: x * 1), "cpu")


def test_a_spec_whose_result_does_not_depend_on_the_random_numbers_is_refused():
    constant = dataclasses.replace(SOUND, reference=lambda x: torch.ones_like(x).cumsum(-1), fills={})

    with pytest.raises(InvalidSpec, match="an earlier result"):
        check_spec(constant, "cpu")


def test_a_spec_whose_bound_is_as_wide_as_its_values_is_refused():
    lax = dataclasses.replace(SOUND, magnitude=lambda x: Magnitude(accumulated=torch.full_like(x, 1e9)))

    with pytest.raises(InvalidSpec, match="cannot tell a right kernel from one that returns zeros"):
        check_spec(lax, "cpu")


def test_inputs_that_the_generator_does_not_decide_are_refused():
    counter = itertools.count()

    def drifting(shape, dtype, generator):
        return (torch.full((shape["M"], shape["N"]), float(next(counter)), dtype=dtype),)

    with pytest.raises(InvalidSpec, match="other values for the same generator state; draw from the generator only"):
        check_spec(dataclasses.replace(SOUND, make_inputs=drifting), "cpu")


def test_inputs_from_the_global_generator_are_refused():
    def careless(shape, dtype, generator):
        return (torch.randn(shape["M"], shape["N"]).to(dtype),)

    with pytest.raises(InvalidSpec, match="draw from the generator only"):
        check_spec(dataclasses.replace(SOUND, make_inputs=careless), "cpu")


def test_a_reference_that_leaves_float64_is_refused():
    with pytest.raises(InvalidSpec, match="must return a float64 tensor"):
        check_spec(dataclasses.replace(SOUND, reference=lambda x: x.float() * 2), "cpu")


@pytest.mark.parametrize("returned", [None, (torch.zeros(3),), 1.5])
def test_a_reference_that_returns_no_tensor_is_refused(returned):
    with pytest.raises(InvalidSpec, match="'doubled' fails on its own case M="):
        check_spec(dataclasses.replace(SOUND, reference=lambda x: returned), "cpu")


def test_a_reference_that_raises_is_refused_with_what_it_raised():
    def broken(x):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(InvalidSpec, match="RuntimeError: shapes do not fit"):
        check_spec(dataclasses.replace(SOUND, reference=broken), "cpu")


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (lambda shape, dtype, generator: torch.zeros(3), "must return a tuple of tensors"),
        (lambda shape, dtype, generator: (torch.zeros(3), 4), "must return a tuple of tensors"),
        (lambda shape, dtype, generator: (torch.zeros(3, dtype=torch.int64),), "at least one floating-point tensor"),
        (lambda shape, dtype, generator: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_maker_that_returns_no_tuple_of_tensors_is_refused(maker, message):
    with pytest.raises(InvalidSpec, match=message):
        check_spec(dataclasses.replace(SOUND, make_inputs=maker, fills={}, strided_inputs=()), "cpu")


def test_a_users_file_that_accepts_zeros_is_refused_before_any_process_is_started(tmp_path):
    file = tmp_path / "nothing.py"
    file.write_text(
        "import torch\n"
        "from autokernel.ops.spec import KernelSpec\n"
        "def make_inputs(shape, dtype, generator):\n"
        "    return (torch.randn(shape['N'], generator=generator).to(dtype),)\n"
        "SPEC = KernelSpec(name='nothing', reference=lambda x: x - x, make_inputs=make_inputs, shapes=({'N': 16},))\n"
    )

    with pytest.raises(InvalidSpec, match="zeros"):
        Evaluator(str(file), device="cpu")
