"""A problem file as a spec: same weights, other seeds, exact references, and which of its sizes vary."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from autokernel.kernelbench.examine import Facts, Refused, examine, execute
from autokernel.ops.problem import Problem, ProblemSpec

PROBLEMS = Path(__file__).parent / "problems"
MOST_BYTES = 64 << 20


@functools.cache
def examined(name: str) -> tuple[Facts, ProblemSpec, dict[str, Any]]:
    file = next(PROBLEMS.glob(f"*/{name}.py"))
    text = file.read_text()
    facts = examine(text, str(file), name="problem", device="cpu", most_bytes=MOST_BYTES)
    names = execute(text, str(file))
    return facts, facts.spec(names), names


def drawn(spec: ProblemSpec, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return spec.make_inputs(spec.timing_shapes[0], dtype, torch.Generator().manual_seed(seed))


def refusal(text: str) -> str:
    with pytest.raises(Refused) as caught:
        examine(text, "problem.py", name="problem", device="cpu", most_bytes=MOST_BYTES)
    return str(caught.value)


def with_forward(line: str, inputs: str = "torch.rand(8, 40)") -> str:
    return (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        f"        {line}\n\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def test_all_sizes_of_a_product_vary_and_none_of_those_that_a_layer_is_made_with():
    assert dict(examined("1_rectangular_product")[0].own_shape) == {"rows": 96, "inner": 80, "columns": 72}
    assert dict(examined("2_tiny_result")[0].own_shape) == {"batch_size": 32}


def test_sizes_in_tuples_have_their_places_and_inputs_without_named_sizes_are_cut_by_rows():
    assert dict(examined("3_running_sum")[0].own_shape) == {"batch_size": 32, "input_shape_0": 500}
    facts, spec, _ = examined("6_average_pooling")
    assert dict(facts.own_shape) == {"batch": 6}
    assert spec.make_inputs({"batch": 2}, torch.float32, torch.Generator().manual_seed(0))[0].shape == (2, 5, 20, 22)


def test_sizes_that_go_together_vary_together():
    facts, _, _ = examined("8_sizes_that_go_together")
    assert dict(facts.own_shape) == {"batch_size": 48, "input_shape_0": 48}
    shapes = [*facts.shapes, *facts.edge_shapes]
    assert {"batch_size": 49, "input_shape_0": 49} in shapes and len(shapes) > 4
    text = (PROBLEMS / "level1" / "8_sizes_that_go_together.py").read_text()
    small = examine(text, "8.py", name="problem", device="cpu", most_bytes=5_000)
    assert set(small.own_shape.values()) == {24}


def test_the_reference_is_the_model_with_the_given_weights_in_float64():
    _, spec, names = examined("1_convolution_norm_activation")
    inputs = drawn(spec, dtype=torch.float64)
    model = names["Model"](*names["get_init_inputs"]()).double()
    model.load_state_dict(dict(zip(spec.weights, inputs[1:], strict=True)), strict=False)
    with torch.no_grad():
        expected = model(inputs[0])
    torch.testing.assert_close(spec.reference(*inputs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("1_recurrent_network", marks=pytest.mark.thorough),
        "4_steps_written_into_a_buffer",
        pytest.param("1_language_model", marks=pytest.mark.thorough),
        "2_scaled_by_a_number",
        "4_hinge_loss",
    ],
)
def test_the_float64_reference_and_the_float32_baseline_agree_as_far_as_float32_does(name: str):
    _, spec, _ = examined(name)
    inputs = drawn(spec)
    wide = [one.double() if one.is_floating_point() else one for one in inputs]
    exact, plain = spec.reference(*wide), spec.baseline(*inputs)
    assert (exact.dtype, plain.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(plain.double(), exact, rtol=1e-4, atol=1e-5)
    assert not torch.equal(plain.double(), exact) or name == "2_scaled_by_a_number"


def test_weights_follow_the_seed_and_none_begins_as_the_model_has_it():
    _, spec, _ = examined("1_convolution_norm_activation")
    first, again, other = drawn(spec, 1), drawn(spec, 1), drawn(spec, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    scale, shift = (first[1 + list(spec.weights).index(f"norm.{name}")] for name in ("weight", "bias"))
    assert scale.std() > 0.01 and shift.abs().min() > 0


def test_the_benchmarks_own_inputs_are_drawn_as_it_draws_them():
    _, spec, names = examined("1_convolution_norm_activation")
    given = spec.benchmark_inputs(7, "cpu")
    torch.manual_seed(42)
    state = names["Model"](*names["get_init_inputs"]()).state_dict()
    torch.manual_seed(7)
    assert torch.equal(given[0], names["get_inputs"]()[0])
    assert all(torch.equal(one, state[name]) for name, one in zip(spec.weights, given[1:], strict=True))


def test_drawing_leaves_pytorchs_generator_and_the_files_constants_alone():
    _, spec, names = examined("1_rectangular_product")
    state = torch.get_rng_state()
    spec.make_inputs({"rows": 3, "inner": 4, "columns": 5}, torch.float32, torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state) and names["rows"] == 96


def test_a_weight_that_two_layers_share_is_one_input():
    facts, spec, _ = examined("1_language_model")
    assert "words.weight" in facts.weights and "head.weight" not in facts.weights
    inputs = list(drawn(spec))
    at = 2 + list(spec.weights).index("words.weight")
    before = spec.baseline(*inputs)
    inputs[at] = inputs[at] * 2
    assert not torch.allclose(spec.baseline(*inputs), before)


def test_dropout_is_judged_in_evaluation_mode_and_said():
    facts, spec, _ = examined("2_residual_network")
    assert not facts.training and "evaluation mode" in facts.notes[0]
    assert "blocks.0.norm.running_var" in facts.weights and min(drawn(spec)[-1]) > 0


def test_integers_are_compared_exactly_and_patterns_on_which_pytorch_is_wrong_are_left_out():
    facts, spec, _ = examined("5_place_of_the_largest")
    assert facts.exact and spec.fills == {}
    names = execute(with_forward("return torch.log(x)"), "problem.py")
    facts = examine(
        with_forward("return torch.log(x)"), "problem.py", name="problem", device="cpu", most_bytes=MOST_BYTES
    )
    assert "zeros_0" not in facts.patterns and "large_0" in facts.patterns
    assert Problem(names).cost({}).flops == 0


def test_sizes_are_halved_until_a_call_fits():
    text = (PROBLEMS / "level1" / "7_rectifier.py").read_text()
    facts = examine(text, "7.py", name="problem", device="cpu", most_bytes=30_000)
    assert facts.own_shape["batch_size"] == 10 and "batch_size=10 for 40" in facts.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "no Model and no get_inputs"),
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        (with_forward("return x @ x"), "does not run"),
        (with_forward("return torch.rand_like(x)"), "draws random numbers"),
        (with_forward("return None"), "returns no tensor"),
        (with_forward("return x.mul_(2)"), "changes the model's inputs"),
        (with_forward("return torch.fft.fft(x)"), "complex"),
        (with_forward("return x * 0"), "returns zeros"),
        (with_forward("return x", "torch.ones(4, dtype=torch.int64)"), "floating-point"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_its_reason(text: str, words: str):
    assert words in refusal(text)


def test_a_problem_whose_result_is_always_nothing_is_refused():
    assert "returns zeros" in refusal((PROBLEMS / "level2" / "3_always_nothing.py").read_text())
