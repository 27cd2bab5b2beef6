"""The roofline of a run, and the agent's exchange."""

from __future__ import annotations

import dataclasses

import pytest
from autokernel_widgets import AgentTrace, Roofline
from autokernel_widgets.markup import text_of
from autokernel_widgets.roofline import place_of

from autokernel.hardware import Device, MeasuredPeaks
from autokernel.hardware import Roofline as Peaks
from tests.recorded_run import record_run
from tests.widgets.rich_run import rich_run, timed, write


def test_a_place_follows_from_rate_bandwidth_and_floor():
    place = place_of(timed(200.0, None).cases[0])

    assert place.flop_per_byte == pytest.approx(1.0)
    assert place.tflop_per_s == pytest.approx(0.005)
    assert place.limit_tflop_per_s == pytest.approx(0.01)  # floor 100 us: twice as fast
    assert place.share == pytest.approx(0.5)


def test_an_operation_without_flop_has_no_place():
    assert place_of(dataclasses.replace(timed(200.0, None).cases[0], tflop_per_s=None)) is None


def test_kept_waiting_and_selected_experiments_are_drawn(tmp_path):
    widget = Roofline(rich_run(tmp_path / "run"))

    def drawn():
        return sorted(number for one in widget.figure["data"] for number in one.get("customdata", []))

    assert drawn() == [0, 1, 4]
    widget.selected = 2
    assert drawn() == [0, 1, 2, 4]
    (ring,) = [one for one in widget.figure["data"] if one["name"] == "selected"]
    assert ring["y"] == [pytest.approx(1 / 260)]


def test_the_floor_stands_over_each_case(tmp_path):
    (floor,) = [one for one in Roofline(rich_run(tmp_path / "run")).figure["data"] if "intensity" in one["name"]]

    assert floor["y"] == [pytest.approx(0.01)]


def test_with_the_figures_of_the_device_the_whole_roof_is_drawn(tmp_path):
    measured = MeasuredPeaks(
        device="x", copy_gb_per_s=10.0, read_gb_per_s=12.0, tflop_per_s={"float32": 0.06}, launch_us=1.0, seconds=1.0,
        measured_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    peaks = Peaks(device=Device.__new__(Device), measured=measured)
    roof = Roofline(rich_run(tmp_path / "run"), peaks=peaks).figure["data"][0]

    assert roof["x"][1] == pytest.approx(5.0)  # the ridge point: 60 GFLOP/s over 12 GB/s
    assert roof["y"][1:] == [0.06, 0.06]


def test_a_run_without_rates_says_so(tmp_path):
    widget = Roofline(record_run(tmp_path / "run"))

    assert "no rate is known yet" in widget.figure["layout"]["annotations"][0]["text"]


def test_a_trace_of_messages_is_shown_message_by_message_as_text(tmp_path):
    trace = AgentTrace(rich_run(tmp_path / "run"), 4)
    text = text_of(trace.tree)

    assert "system: <script>alert(3)</script>" in text and "user: go" in text and "try more lanes" in text
    assert "<script>" not in trace._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize(
    "odd", ["just text", ["a", "list"], {"nested": {"deep": [1, None]}}, {"messages": [{"role": None}]}]
)
def test_any_other_trace_is_shown_as_it_is(tmp_path, odd):
    run = rich_run(tmp_path / "run")
    write(run, 4, trace=odd)

    assert "cannot be read" not in text_of(AgentTrace(run, 4).tree)


def test_an_agent_without_an_exchange_is_said_to_have_none(tmp_path):
    assert "left no exchange" in text_of(AgentTrace(record_run(tmp_path / "run"), 1).tree)


def test_reasoning_and_cost_of_a_model_are_shown(tmp_path):
    run = rich_run(tmp_path / "run")
    answer = {"role": "assistant", "content": "the kernel", "reasoning": "because"}
    write(run, 4, trace={"messages": [answer], "turns": [{"cost": 0.25}, {"cost": 0.5}, {"cost": None}]})
    text = text_of(AgentTrace(run, 4).tree)

    assert "reasoning: because" in text and "assistant: the kernel" in text and "cost 0.75" in text
