"""`autokernel profile` as a person runs it, and the figure that it draws."""

from __future__ import annotations

import json

import pytest

from autokernel.cli import main
from autokernel.plots import amdahl
from autokernel.profiling import ProfileReport
from tests.command_line import ROOT, autokernel

GPT2 = f"{ROOT}/examples/models/gpt2.py:GPT2"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    done = autokernel(
        "profile", GPT2, "--arg", "layers=1", "--input", "1x16:int64", "--repeats", 1, "--save", folder / "report.json",
        "--plot", folder / "report.html", "--trace", folder / "trace.json", "--what-if", "matmul=2",
        "--capture", f"blocks.0.mlp={folder / 'mlp.py'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_table_shows_totals_targets_and_what_ifs(saved):
    _, done = saved

    assert "GPT2 on " in done.stdout
    assert "1x16 int64; evaluation, forward" in done.stdout
    assert "matmul-16x5003x192" in done.stdout
    assert "blocks.*.attention_norm" in done.stdout
    assert "what if:" in done.stdout
    assert "2x on " in done.stdout


def test_the_files_that_were_asked_for_are_written(saved):
    folder, _ = saved

    assert ProfileReport.load(folder / "report.json").model == "GPT2"
    assert "traceEvents" in json.loads((folder / "trace.json").read_text())
    assert "KernelSpec" in (folder / "mlp.py").read_text()
    assert "plotly" in (folder / "report.html").read_text()[:100_000].lower()


def test_a_saved_report_is_shown_again_as_json_without_the_model(saved, capsys):
    folder, _ = saved
    status = main(["profile", str(folder / "report.json"), "--json", "--what-if", "layernorm=free"])
    data = json.loads(capsys.readouterr().out)

    assert status == 0
    assert data["targets"][0]["gain"] >= 1.0
    assert data["what_if"]["speedup"] > 1.0
    total = (
        sum(target["share"] for target in data["targets"])
        + data["totals"]["unclaimed_us"] / data["totals"]["device_us"]
    )
    assert total == pytest.approx(1)


def test_a_captured_spec_is_taken_by_new(saved, capsys):
    folder, _ = saved
    kernel = folder / "kernel.py"
    kernel.write_text('KERNEL_TYPE = "mlp"\nBACKEND = "cpp"\ndef kernel_fn(*inputs):\n    raise NotImplementedError\n')
    runs = str(folder / "runs")
    status = main(["new", "--spec", str(folder / "mlp.py"), "--from", str(kernel), "--root", runs])

    assert status == 0, capsys.readouterr().err
    assert (folder / "runs" / "mlp-1" / "target.toml").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((f"{ROOT}/examples/models/missing.py:Net",), "no file"),
        (("torch.nn:GELU",), "--input"),
        ((GPT2, "--arg", "layers"), "NAME=VALUE"),
        ((GPT2, "--what-if", "matmul=fast"), "NAME=2.0"),
        ((GPT2, "--capture", "mlp"), "MODULE=FILE.py"),
        ((GPT2, "--input", "1x2000:int64"), "GPT2 failed in positions"),
    ],
)
def test_wrong_use_is_one_message_and_status_2(arguments, message, capsys):
    status = main(["profile", *arguments])
    errors = capsys.readouterr().err

    assert status == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_figure_has_a_bar_for_each_target_and_the_two_speedups(saved):
    report = ProfileReport.load(saved[0] / "report.json")
    figure = amdahl(report)
    above, below, gain, ceiling = figure.data

    totals = [one + other for one, other in zip(above.x, below.x, strict=False)]
    assert sum(totals) == pytest.approx(100 * sum(target.share for target in report.targets[: len(above.x)]), rel=1e-3)
    assert list(gain.x) == pytest.approx([target.gain for target in report.targets[: len(gain.x)]])
    assert list(ceiling.x) == pytest.approx([target.ceiling for target in report.targets[: len(ceiling.x)]])
    assert figure.layout.xaxis.title.text == "Share of the device time (%)"
