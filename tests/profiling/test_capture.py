"""A captured module becomes a spec file whose two functions compute what the module computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import autokernel as ak
from autokernel import ops
from autokernel.errors import UsageError
from autokernel.verifier import selftest
from examples.models import gpt2, llama


def report_of(model, inputs, **options):
    return ak.profile(model, inputs, repeats=1, floors=False, **options)


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return report_of(llama.Llama(layers=1, width=64, heads=4, hidden=96).eval(), llama.example_inputs(length=16))


@pytest.mark.parametrize(
    "path", ["layers.0.mlp", "layers.0.attention_norm", "layers.0.attention", "layers.0", "embedding", ""]
)
def test_a_module_of_any_size_can_be_captured(report, tmp_path, path):
    spec = ops.load_file(report.capture(path, tmp_path / "spec.py"))
    inputs = spec.make_inputs(spec.shapes[0], torch.float32, torch.Generator().manual_seed(1))
    exact = spec.reference(*(one.double() if one.is_floating_point() else one for one in inputs))

    assert exact.dtype == torch.float64
    torch.testing.assert_close(spec.baseline(*inputs).double(), exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max()))


def test_the_file_computes_what_the_module_computes_with_its_own_weights(report, tmp_path):
    module = report.subject.model.layers[0].mlp
    spec = ops.load_file(report.capture("layers.0.mlp", tmp_path / "spec.py"))
    x = torch.randn(1, 16, 64)
    with torch.no_grad():
        expected = module(x)

    assert spec.signature == "(x, gate_weight, up_weight, down_weight)"
    weights = (module.gate.weight, module.up.weight, module.down.weight)
    torch.testing.assert_close(spec.baseline(x, *weights), expected)


def test_a_target_is_captured_by_its_name_through_the_module_that_calls_it(report, tmp_path):
    spec = ops.load_file(report.capture("fused_mlp", tmp_path / "spec.py"))
    assert spec.name == "swiglu"


def test_a_captured_spec_passes_the_verifiers_own_test(report, tmp_path):
    spec = ops.load_file(report.capture("layers.0.mlp", tmp_path / "spec.py"))
    assert spec.flops(spec.shapes[0]) == 3 * 2 * 16 * 64 * 96
    selftest.check_spec(spec, "cpu")  # raises where a wrong kernel would pass


def test_a_half_precision_module_keeps_its_casts_and_has_an_exact_reference(tmp_path):
    model = llama.Llama(layers=1, width=64, heads=4, hidden=96).bfloat16().eval()
    captured = report_of(model, llama.example_inputs(length=16)).capture("layers.0.mlp_norm", tmp_path / "norm.py")
    spec = ops.load_file(captured)
    x, weight = spec.make_inputs(spec.shapes[0], torch.bfloat16, torch.Generator().manual_seed(0))
    wide = x.double()
    exact = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.double()

    assert spec.dtypes == ("bfloat16",)
    torch.testing.assert_close(spec.reference(wide, weight.double()), exact)
    assert spec.baseline(x, weight).dtype == torch.bfloat16
    torch.testing.assert_close(spec.baseline(x, weight), model.layers[0].mlp_norm(x) * weight, rtol=0.02, atol=0.02)


def test_integer_inputs_stay_in_the_range_that_was_seen(tmp_path):
    model = gpt2.GPT2(layers=1, vocabulary=50)
    spec = ops.load_file(report_of(model, torch.tensor([[3, 7, 5]])).capture("embedding", tmp_path / "spec.py"))
    tokens, _ = spec.make_inputs(spec.shapes[0], torch.float32, torch.Generator().manual_seed(0))

    assert tokens.dtype == torch.int64
    assert set(tokens.unique().tolist()) <= set(range(3, 8))


class Unusual(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.unused = nn.Linear(2, 2)
        self.table = torch.randn(5000)

    def forward(self, x):
        return functional.relu(self.drop(x)) + self.table[: x.shape[-1]]


def test_a_module_in_double_precision_is_refused(tmp_path):
    captured = report_of(nn.Linear(4, 4).double(), torch.randn(2, 4, dtype=torch.float64))

    with pytest.raises(UsageError, match="computes in float64"):
        captured.capture("", tmp_path / "spec.py")


@pytest.mark.parametrize(
    ("path", "train", "message"),
    [
        ("nothing.here", False, "no module 'nothing.here'; it has: drop, unused"),
        ("unused", False, "does not call its module 'unused'"),
        ("drop", True, "draws random numbers"),
        ("", False, "constant tensor of 5000 elements"),
    ],
)
def test_what_cannot_be_captured_is_refused_and_leaves_no_file(tmp_path, path, train, message):
    captured = report_of(Unusual(), torch.randn(2, 4), train=train)

    with pytest.raises(UsageError, match=message):
        captured.capture(path, tmp_path / "spec.py")
    assert not (tmp_path / "spec.py").exists()


def test_a_function_and_a_file_of_another_kind_are_refused(tmp_path):
    captured = report_of(lambda x: torch.softmax(x, -1), torch.randn(2, 4))

    with pytest.raises(UsageError, match="only modules can be captured"):
        captured.capture("", tmp_path / "spec.py")
    with pytest.raises(UsageError, match=r"end the name in \.py"):
        captured.capture("", tmp_path / "spec.txt")
