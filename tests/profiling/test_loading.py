"""Models named on a command line: files, modules, configurations, exported programs; and the inputs' sizes."""

from __future__ import annotations

import json

import pytest
import torch

import autokernel as ak
from autokernel.errors import UsageError
from autokernel.profiling.loading import load, make_inputs
from tests.command_line import ROOT

MODEL = """
import torch
class Net(torch.nn.Linear):
    def __init__(self, width=4):
        super().__init__(width, width)
def make(kind):
    return Net() if kind == "net" else 3
net = Net(6)
number = 5
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model_file.py"
    path.write_text(MODEL)
    return path


def test_a_class_a_function_and_a_model_of_a_file_are_found(file):
    assert load(f"{file}:Net").model.in_features == 4
    assert load(f"{file}:Net", {"width": 8}).model.in_features == 8
    assert load(f"{file}:make", {"kind": "net"}).model.in_features == 4
    assert load(f"{file}:net").model.in_features == 6


def test_a_module_is_imported_from_the_folder(file):
    assert load("model_file:Net", folder=file.parent).model.in_features == 4
    assert load("torch.nn:GELU").model(torch.zeros(1)) == 0


def test_a_file_brings_its_example_inputs():
    loaded = load(f"{ROOT}/examples/models/gpt2.py:GPT2", {"vocabulary": 11, "layers": 1})

    assert loaded.vocabulary == 11
    assert int(loaded.inputs.max()) < 11


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("{file}", {}, "names no model"),
        ("{file}:Nothing", {}, "has no 'Nothing'; it defines: Net, make"),
        ("{file}:number", {}, "is a int"),
        ("{file}:make", {}, "missing 1 required.*--arg"),
        ("{file}:make", {"kind": "x"}, "returned a int"),
        ("missing.py:Net", {}, "no file 'missing.py'"),
        ("no_such_module_at_all:Net", {}, "cannot import no_such_module_at_all"),
        ("hf:missing", {}, "no configuration"),
        ("missing.pt2", {}, "no file 'missing.pt2'"),
        ("{file}.pt2", {"a": 1}, "takes no arguments"),
    ],
)
def test_what_names_no_model_is_refused(file, text, arguments, message):
    with pytest.raises(UsageError, match=message):
        load(text.format(file=file), arguments)


def test_a_file_that_fails_on_import_is_reported(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")

    with pytest.raises(UsageError, match="failed on import: ZeroDivisionError"):
        load(f"{tmp_path}/broken.py:Net")


def test_an_exported_program_is_profiled_with_the_inputs_that_it_holds(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    torch.export.save(torch.export.export(model, (torch.randn(2, 8),)), tmp_path / "program.pt2")
    loaded = load(str(tmp_path / "program.pt2"))
    report = ak.profile(loaded.model, loaded.inputs, repeats=1, floors=False)

    assert {target.operation for target in report.targets} == {"matmul", "layernorm"}


def test_a_file_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "wrong.pt2").write_text("no program")

    with pytest.raises(UsageError, match="no program of torch.export"):
        load(str(tmp_path / "wrong.pt2"))


def test_a_configuration_without_a_known_type_is_refused(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    for text in ("{", "{}", json.dumps({"model_type": "no_such_model"})):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UsageError, match="no Hugging Face configuration"):
            load(f"hf:{tmp_path}")


def test_inputs_are_read_from_their_sizes():
    (tokens,) = make_inputs(["2x3:int64"], dtype=torch.float16, device=torch.device("cpu"), vocabulary=5)
    x, flag = make_inputs(["4x5", "2:bool"], dtype=torch.float16, device=torch.device("cpu"))
    named = make_inputs(["a=2x2:float32", "b=scalar"], dtype=torch.float16, device=torch.device("cpu"))

    assert (tokens.shape, tokens.dtype) == ((2, 3), torch.int64)
    assert int(tokens.max()) < 5
    assert (x.shape, x.dtype, flag.dtype) == ((4, 5), torch.float16, torch.bool)
    assert isinstance(named, dict)
    assert named["b"].shape == ()


@pytest.mark.parametrize("texts", [["x"], ["4x"], ["4x5:int3"], ["-1"], ["a=2", "3"], ["4X5"]])
def test_inputs_that_cannot_be_read_are_refused(texts):
    with pytest.raises(UsageError, match="NAME="):
        make_inputs(texts, dtype=torch.float32, device=torch.device("cpu"))
