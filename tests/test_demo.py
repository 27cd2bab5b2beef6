"""The demo as a person sees it: the whole command in a process of its own, with real measurements."""

from __future__ import annotations

import os
import re

import pytest

from autokernel import backends, demo, results
from autokernel.cli.tables import show_summary
from autokernel.experiment import Summary, tally
from autokernel.runfolder import RunFolder
from tests.command_line import autokernel

AVAILABLE, WHY = backends.available("cpp")


def test_a_busy_machine_is_named_with_its_load(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 0.0, 0.0))
    assert "load 3.5 on 4 cores" in demo.busy_note()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.6, 9.0, 9.0))
    assert demo.busy_note() == ""


def test_the_summary_says_that_the_machine_was_busy(tmp_path, capsys):
    summary = Summary(
        tally=tally([]), best=None, stopped="1 experiments were made", cause="experiments", seconds=1.0,
        seconds_per_experiment=None, results=tmp_path / "results.tsv",
    )  # fmt: skip
    show_summary(summary, note="the machine was busy at the start (load 3.5 on 4 cores)")
    busy = capsys.readouterr().out
    show_summary(summary)
    quiet = capsys.readouterr().out

    assert re.search(r"^note +the machine was busy at the start \(load 3.5", busy, re.MULTILINE)
    assert "note" not in quiet


@pytest.mark.skipif(not AVAILABLE, reason=WHY)
def test_the_demo_shows_each_experiment_and_ends_with_table_results_and_figure(tmp_path):
    done = autokernel("demo", "--experiments", 2, "--device", "cpu", "--root", tmp_path)

    assert done.returncode == 0, done.stderr
    run = tmp_path / "rmsnorm-1"
    for number, what in ((0, "baseline"), (1, "NUM_THREADS|LANES"), (2, "LANES|BLOCK_COLS")):
        assert re.search(rf"^ +{number} .*({what})", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"best speedup over PyTorch +\d+\.\d+x \(\d+\.\d+ to \d+\.\d+\)", done.stdout)
    assert re.search(r"kept / reverted / rejected +\d / \d / 0", done.stdout)
    assert str(run / "results.tsv") in done.stdout and len(results.load(run / "results.tsv")) == 3
    figure = next(path for path in run.iterdir() if path.stem == "progress")
    assert str(figure) in done.stdout and figure.stat().st_size > 10_000
    assert f"autokernel run {run}" in done.stdout
    assert [one.correctness for one in RunFolder(run).experiments] == ["PASS"] * 3
