"""``autokernel integrate`` and ``check-model`` as a person runs them."""

from __future__ import annotations

import json

import pytest

from autokernel.cli import main
from tests.command_line import autokernel
from tests.integration.kernels import WRONG_RMSNORM, needs_compiler, starter

MODEL = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Embedding(50, 32), nn.RMSNorm(32, eps=1e-5), nn.Linear(32, 50))

def example_inputs():
    return (torch.arange(12).reshape(2, 6),)

broken = 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "kernel.py").write_text(starter("rmsnorm"))
    (tmp_path / "wrong.py").write_text(WRONG_RMSNORM)
    return tmp_path


@needs_compiler
def test_check_model_passes_a_right_kernel_and_says_so(folder):
    done = autokernel(
        "check-model", "net.py:net", "--kernel", "kernel.py", "--unverified", "--seconds", "0.2", "--device", "cpu",
        "--share", "rmsnorm=0.5:2",
        cwd=folder,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("passed")
    for words in (
        "rmsnorm: F.rms_norm in 1",
        "inputs, batch 1",
        "inputs, length 4",
        "float64",
        "greedy tokens: 100.00% of 12",
    ):
        assert words in done.stdout, done.stdout
    assert "integrated over original (wall time)" in done.stdout
    assert "predicted by Amdahl's law from the shares: 1.333x" in done.stdout


@needs_compiler
def test_json_is_json_and_a_kernel_without_a_place_exits_1(folder):
    kernel = ("--kernel", "kernel.py", "--unverified", "--device", "cpu", "--json")
    report = json.loads(autokernel("integrate", "net.py:net", *kernel, "--input", "3x7:int64", cwd=folder).stdout)
    assert report["kernel_calls"] == 1
    assert report["places"][0]["path"] == "1"

    refused = autokernel("integrate", "net.py:net", "--kernel", "wrong.py", *kernel[2:], cwd=folder)
    assert refused.returncode == 1
    assert "wrong on the model's own input" in json.loads(refused.stdout)["refused"][0]["reason"]


@needs_compiler
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_check_of_a_model_in_which_no_kernel_ran_is_wrong_use(folder, monkeypatch, capsys, options):
    (folder / "other.py").write_text(starter("softmax"))
    monkeypatch.chdir(folder)
    status = main(["check-model", "net.py:net", "--kernel", "other.py", "--unverified", "--device", "cpu", *options])

    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert "nothing is proven: the model calls nothing that other.py computes" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.py:net", "--kernel", "kernel.py"), "no accepted verdict is recorded"),
        (("net.py:net", "--kernel", "nowhere"), "neither a run folder nor a kernel file"),
        (("net.py:other", "--kernel", "kernel.py"), "has no 'other'"),
        (("net.py:broken", "--kernel", "kernel.py"), "is a int"),
        (("net.py", "--kernel", "kernel.py"), "write FILE.py:CLASS"),
        (("net.py:net", "--kernel", "kernel.py", "--input", "4x"), "cannot read the input '4x'"),
        (("net.py:net", "--kernel", "kernel.py", "--admit", "all"), "'all' is none of verified, checked, range"),
    ],
)
@needs_compiler
def test_wrong_use_is_one_sentence_and_exit_status_2(folder, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    status = main(["integrate", *arguments, "--device", "cpu"])

    assert status == 2
    assert message in capsys.readouterr().err
