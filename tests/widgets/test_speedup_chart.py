"""The live figure of a run."""

from __future__ import annotations

import asyncio

import pytest
from autokernel_widgets import SpeedupChart

from autokernel.errors import UsageError
from autokernel.journal import Journal
from autokernel.runfolder import RunFolder
from tests.recorded_run import record_run


def drawn(chart):
    return sorted(x for trace in chart.data if trace.mode == "markers" for x in trace.x)


def append(run, experiment):
    Journal(run / ".autokernel" / "journal.jsonl").write("decided", experiment=experiment)


def test_every_experiment_of_the_run_is_drawn(tmp_path):
    assert drawn(SpeedupChart(record_run(tmp_path / "run"))) == [0, 1, 2, 3]


def test_a_path_and_a_run_folder_show_the_same(tmp_path):
    run = record_run(tmp_path / "run")

    assert drawn(SpeedupChart(str(run))) == drawn(SpeedupChart(RunFolder(run)))


def test_refreshing_without_news_sends_nothing(tmp_path):
    assert SpeedupChart(record_run(tmp_path / "run")).refresh() is False


def test_an_experiment_that_another_process_made_appears_on_refresh(tmp_path):
    run = record_run(tmp_path / "run", waiting=True)
    chart = SpeedupChart(run)
    waiting = RunFolder(run).pending
    append(run, type(waiting).from_dict({**waiting.to_dict(), "state": "decided", "decision": "keep"}))

    assert chart.refresh() is True
    assert 4 in next(trace for trace in chart.data if trace.name == "kept").x


def test_a_reloaded_browser_draws_what_was_refreshed_last(tmp_path):
    run = record_run(tmp_path / "run")
    chart = SpeedupChart(run)
    append(run, type(RunFolder(run).best).from_dict({**RunFolder(run).best.to_dict(), "number": 4}))
    chart.refresh()

    assert [x for trace in chart._widget_data if trace.get("mode") == "markers" for x in trace["x"] if x > 3] == [4]


async def test_following_updates_the_figure_until_the_time_is_up(tmp_path):
    run = record_run(tmp_path / "run")
    chart = SpeedupChart(run)
    task = asyncio.create_task(chart.follow(interval_seconds=0.1, seconds=0.5))
    await asyncio.sleep(0.05)
    append(run, type(RunFolder(run).best).from_dict({**RunFolder(run).best.to_dict(), "number": 4}))
    await task

    assert 4 in drawn(chart)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no run"):
        SpeedupChart(tmp_path)
