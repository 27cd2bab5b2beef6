from __future__ import annotations

import pytest
import torch

from autokernel.ops.fused_mlp import ACTIVATIONS, SPEC
from autokernel.ops.spec import Case
from tests.ops.judging import as_tf32, filled, in_float64, judge, make_inputs, worst

LONG = Case(shape={"M": 16, "K": 2048, "F": 2048, "N": 64}, dtype="float32")


def with_activation(act):
    """The block in float32 with ``act`` for its activation."""

    def kernel(x, w_gate, w_up, w_down, activation="silu"):
        x, w_gate, w_up, w_down = x.float(), w_gate.float(), w_up.float(), w_down.float()
        return (act(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T

    return lambda x, *rest, **options: kernel(x, *rest, **options).to(x.dtype)


@pytest.mark.parametrize("options", SPEC.options)
def test_reference_is_the_composition_of_linear_layers(options):
    inputs = in_float64(make_inputs(SPEC, filled(SPEC, "normal")))
    torch.testing.assert_close(SPEC.reference(*inputs, **options), SPEC.baseline(*inputs, **options))


def test_gelu_is_the_exact_one():
    gate = torch.tensor([-1.0], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS["gelu"](gate), gate * 0.5 * (1 + torch.erf(gate / 2**0.5)))


def test_outputs_are_of_order_one():
    inputs = in_float64(make_inputs(SPEC, filled(SPEC, "normal")))
    assert 0.2 < SPEC.reference(*inputs).std() < 2


def test_linear_layers_that_round_every_intermediate_are_within_half_the_bound_everywhere():
    assert worst(SPEC, SPEC.baseline) <= 0.5


def test_triton_starter_is_within_half_the_bound_everywhere(interpret):
    ratios = interpret("fused_mlp")["ratios"]
    assert max(ratios.values()) <= 0.5, max(ratios.items(), key=lambda item: item[1])


def test_a_float32_block_of_long_rows_is_within_half_the_bound():
    assert judge(SPEC, LONG, with_activation(torch.nn.functional.silu)) <= 0.5


@pytest.mark.parametrize("case", [*[Case(shape=shape, dtype="float32") for shape in SPEC.shapes], LONG])
def test_tf32_operands_are_outside_the_float32_bound(case):
    def tf32(x, w_gate, w_up, w_down, activation="silu"):
        x, w_gate, w_up, w_down = map(as_tf32, (x, w_gate, w_up, w_down))
        return as_tf32(ACTIVATIONS[activation](x @ w_gate.T) * (x @ w_up.T)) @ w_down.T

    assert judge(SPEC, case, tf32) > 2


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_zeros_and_a_block_without_gate_are_outside_the_bound(dtype):
    case = filled(SPEC, "normal", dtype)
    assert judge(SPEC, case, lambda x, g, u, d, activation="silu": x.new_zeros(x.shape[0], d.shape[0])) > 4
    assert judge(SPEC, case, with_activation(torch.ones_like)) > 4


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_silu_for_another_activation_is_outside_the_bound(dtype, activation):
    case = filled(SPEC, "normal", dtype, activation=activation)
    assert judge(SPEC, case, with_activation(torch.nn.functional.silu)) > 4


def test_the_tanh_approximation_of_gelu_is_outside_the_float32_bound():
    approximate = with_activation(lambda gate: torch.nn.functional.gelu(gate, approximate="tanh"))
    assert judge(SPEC, filled(SPEC, "normal", activation="gelu"), approximate) > 4


@pytest.mark.parametrize("dtype", SPEC.dtypes)
def test_an_exponential_that_overflows_float16_is_outside_the_bound_for_large_gates(dtype):
    def overflowing(gate):
        power = gate.exp().half().float()
        return gate * power / (1 + power)

    assert judge(SPEC, filled(SPEC, "large_gates", dtype), with_activation(overflowing)) > 1
