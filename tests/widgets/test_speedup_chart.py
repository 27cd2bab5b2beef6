"""The live figure of a run."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip

import pytest
from autokernel_widgets import SpeedupChart, chart
from autokernel_widgets.outcomes import OUTCOMES
from autokernel_widgets.speedup_chart import compile_speedup, roofline_limit

from autokernel.experiment import Experiment
from autokernel.measurement import Measurement, Ratio
from autokernel.runfolder import RunFolder
from tests.recorded_run import record_run
from tests.widgets.rich_run import add, rich_run, timed


def trace(widget, name):
    return next(one for one in widget.figure["data"] if one["name"] == name)


def drawn(widget):
    return sorted(x for one in widget.figure["data"] if one["mode"] == "markers" for x in one["x"])


def words(widget):
    return [one["text"] for one in widget.figure["layout"]["annotations"]]


def test_every_experiment_of_the_run_is_drawn(tmp_path):
    assert drawn(SpeedupChart(record_run(tmp_path / "run"))) == [0, 1, 2, 3]


def test_a_path_and_a_run_folder_show_the_same(tmp_path):
    run = record_run(tmp_path / "run")

    assert SpeedupChart(str(run)).figure == SpeedupChart(RunFolder(run)).figure


def test_outcomes_differ_by_shape_and_by_colour():
    marks = [one for one in OUTCOMES.values() if one.key != "judging"]

    assert len({one.symbol for one in marks}) == len({one.mark for one in marks}) == len(marks)
    assert len({one.colour for one in marks}) == len(marks)


def test_crashed_and_wrong_are_told_apart_and_stand_below_for_they_have_no_time(tmp_path):
    run = record_run(tmp_path / "run")
    add(run, correctness="CRASH", decision="revert", speedups={})
    widget = SpeedupChart(run)

    assert (trace(widget, "wrong")["x"], trace(widget, "crashed or hung")["x"]) == ([3], [4])
    assert trace(widget, "wrong")["yaxis"] == trace(widget, "crashed or hung")["yaxis"] == "y2"


def test_the_step_line_follows_what_was_kept(tmp_path):
    line = trace(SpeedupChart(record_run(tmp_path / "run")), "kernel on the branch")

    assert (line["x"], line["y"]) == ([0, 1, 3.5], [0.8, 1.3, 1.3])


def test_bars_are_the_intervals(tmp_path):
    bars = trace(SpeedupChart(record_run(tmp_path / "run")), "95 % interval, kept")

    assert (bars["x"], bars["y"]) == ([1, 1, None], [pytest.approx(1.29), pytest.approx(1.31), None])


def test_baselines_and_the_roofline_limit_are_drawn(tmp_path):
    run = rich_run(tmp_path / "run")

    assert words(SpeedupChart(run)) == ["PyTorch eager (1.00×)", "roofline limit (3.00×), above"]
    ratios = {"pytorch": Ratio(2.8, 2.7, 2.9), "compile": Ratio(1.4, 1.3, 1.5)}
    add(run, speedups=ratios, commit="of another")
    assert "torch.compile (2.00×)" in words(SpeedupChart(run))


def test_the_roofline_limit_weighs_the_cases_by_their_time():
    (case,) = timed(200.0, None).cases  # PyTorch 300, floor 100: three times
    fast = dataclasses.replace(case, floor_us=30.0, weight=3.0)  # ten times

    assert roofline_limit(Measurement(cases=(case,), speedups={})) == pytest.approx(3.0)
    assert roofline_limit(Measurement(cases=(case, fast), speedups={})) == pytest.approx(4 / (1 / 3 + 3 / 10))


def test_there_is_no_limit_where_one_case_has_no_floor():
    (case,) = timed(200.0, None).cases

    assert roofline_limit(Measurement(cases=(case, dataclasses.replace(case, floor_us=None)), speedups={})) is None
    assert roofline_limit(None) is None


def test_torch_compile_is_placed_by_its_ratio_to_the_same_kernel():
    ratios = {"pytorch": Ratio(3.0, 3.0, 3.0), "compile": Ratio(2.0, 2.0, 2.0)}

    assert compile_speedup(Experiment(number=1, speedups=ratios)) == 1.5
    assert compile_speedup(Experiment(number=1)) is None


def test_what_an_agent_wrote_is_escaped_in_the_hover(tmp_path):
    hovers = str([one.get("hovertext") for one in SpeedupChart(record_run(tmp_path / "run")).figure["data"]])

    assert "&lt;script&gt;" in hovers and "<script>" not in hovers


def test_refreshing_without_news_sends_nothing(tmp_path):
    assert SpeedupChart(record_run(tmp_path / "run")).refresh() is False


def test_an_experiment_that_another_process_made_appears_on_refresh(tmp_path):
    run = record_run(tmp_path / "run")
    widget = SpeedupChart(run)
    number = add(run)

    assert widget.refresh() is True
    assert number in trace(widget, "kept")["x"]


async def test_in_an_event_loop_it_follows_by_itself_until_it_is_closed(tmp_path):
    run = record_run(tmp_path / "run")
    widget = SpeedupChart(run)
    number = add(run)
    for _ in range(100):
        await asyncio.sleep(0.1)
        if number in drawn(widget):
            break
    task = widget._task
    widget.close()
    await asyncio.wait_for(task, 20)

    assert number in drawn(widget)
    assert widget.beat > 0


async def test_following_ends_after_the_time_that_was_asked_for(tmp_path):
    run = record_run(tmp_path / "run")
    widget = SpeedupChart(run, live=False)
    task = asyncio.create_task(widget.follow(interval_seconds=0.1, seconds=0.5))
    await asyncio.sleep(0.05)
    number = add(run)
    await task

    assert number in drawn(widget)


def test_a_folder_that_is_no_run_is_said_in_the_widget(tmp_path):
    assert "is no run" in SpeedupChart(tmp_path).problem


def test_without_plotly_it_says_what_to_install_and_still_has_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(chart, "plotly_file", lambda: None)
    widget = SpeedupChart(record_run(tmp_path / "run"))

    assert "pip install plotly" in widget.problem
    assert "<svg" in widget._repr_mimebundle_()[0]["text/html"]


def test_the_browser_gets_plotly_only_when_it_asks(tmp_path):
    widget = SpeedupChart(record_run(tmp_path / "run"))
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    widget._handle_custom_msg({"wants": "plotly"}, [])
    (sketch, _), (content, (packed,)) = sent

    assert sketch["gives"] == "sketch" and "svg" in str(sketch["tree"])  # to look at meanwhile
    assert content == {"gives": "plotly"}
    assert b"plotly.js v" in gzip.decompress(packed)[:200]
    assert len(str(widget.get_state())) < 50_000


def test_without_widgets_it_is_a_picture_and_a_table(tmp_path):
    static = SpeedupChart(record_run(tmp_path / "run"))._repr_mimebundle_()[0]["text/html"]

    assert static.count("<svg") == 1 and "LANES 1 -&gt; 8" in static and "1.300×" in static
