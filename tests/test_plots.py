"""Figures: what they say about experiments, and that files of every format are written."""

from __future__ import annotations

import pytest

from autokernel import plots
from autokernel.errors import BackendUnavailable, UsageError
from autokernel.measurement import CaseTiming, Contestant, Ratio
from autokernel.results import Row

ROWS = [
    Row(experiment=0, decision="baseline", correctness="PASS", speedup_vs_pytorch=0.8, description="starter"),
    Row(experiment=1, decision="keep", correctness="PASS", speedup_vs_pytorch=1.2, commit="0123456789abcdef"),
    Row(experiment=2, decision="revert", correctness="PASS", speedup_vs_pytorch=1.1),
    Row(experiment=3, decision="revert", correctness="CRASH"),
    Row(experiment=4, decision="", correctness="PASS", speedup_vs_pytorch=1.4),
]


def contestant(name, latency_us, samples_us=()):
    return Contestant(
        name=name, latency_us=latency_us, low_us=latency_us * 0.9, high_us=latency_us * 1.2, call_us=latency_us,
        samples_us=samples_us,
    )  # fmt: skip


def case(**changes):
    contestants = {
        "candidate": contestant("candidate", 10.0, (9.0, 10.0, 11.0)),
        "pytorch": contestant("pytorch", 20.0, (19.0, 20.0, 21.0)),
    }
    fields = {"label": "M=1 N=2 float32", "weight": 1.0, "method": "wall", "contestants": contestants, "speedups": {}}
    return CaseTiming(**{**fields, **changes})


def traces(figure):
    return {trace.name: trace for trace in figure.data if trace.mode == "markers"}


def test_every_outcome_has_a_symbol_and_a_colour_of_its_own():
    _, colours, symbols = zip(*plots.OUTCOMES.values(), strict=True)

    assert len(set(colours)) == len(set(symbols)) == len(plots.OUTCOMES)


def test_each_experiment_is_one_point_named_by_its_outcome():
    outcomes = [point.outcome for point in plots.progress_points(ROWS)]

    assert outcomes == ["baseline", "keep", "revert", "rejected", "waiting"]


def test_rows_as_text_give_the_same_points_as_rows_as_objects():
    assert plots.progress_points([row.fields() for row in ROWS]) == plots.progress_points(ROWS)


def test_a_baseline_that_failed_is_not_drawn_as_correct():
    (point,) = plots.progress_points([Row(experiment=0, decision="baseline", correctness="FAIL")])

    assert point.outcome == "rejected"


def test_a_row_without_a_number_is_refused_with_its_content():
    with pytest.raises(UsageError, match="lost"):
        plots.progress_points([{"experiment": "", "description": "lost"}])


def test_the_step_line_follows_kept_kernels_only():
    figure = plots.progress(plots.progress_points(ROWS))
    (line,) = [trace for trace in figure.data if trace.mode == "lines"]

    assert list(line.x[:2]) == [0, 1]
    assert list(line.y) == [0.8, 1.2, 1.2]


def test_interval_bars_reach_the_ends_of_the_confidence_interval():
    figure = plots.progress(plots.progress_points(ROWS, {1: Ratio(1.2, 1.1, 1.35)}))
    bars = traces(figure)["kept"].error_y

    assert bars.array[0] == pytest.approx(0.15)
    assert bars.arrayminus[0] == pytest.approx(0.1)


def test_an_experiment_without_a_time_stands_on_a_strip_of_its_own():
    figure = plots.progress(plots.progress_points(ROWS))

    assert traces(figure)["rejected by the verifier"].yaxis == "y2"
    assert traces(figure)["kept"].yaxis == "y"


def test_a_hostile_hypothesis_is_shown_as_text():
    row = Row(experiment=0, decision="keep", correctness="PASS", description="<a href='x'>\x1b[2J</a>\u202e")
    figure = plots.progress(plots.progress_points([row]))
    (hover,) = next(iter(traces(figure).values())).hovertext

    assert "&lt;a href='x'&gt;&lt;/a&gt;" in hover
    assert "\x1b" not in hover
    assert "\u202e" not in hover


def test_an_empty_run_still_gives_a_figure_with_units_on_its_axes():
    figure = plots.progress([])

    assert figure.layout.yaxis.title.text == "Speedup over PyTorch eager (×)"


def test_a_figure_of_nothing_but_rejected_experiments_has_a_range_around_one():
    low, high = plots.progress(plots.progress_points([ROWS[3]])).layout.yaxis.range

    assert low < 1.0 < high


def test_every_sample_of_every_contestant_is_drawn():
    figure = plots.latencies(case(floor_us=5.0))

    assert {trace.name: list(trace.x) for trace in figure.data} == {
        "pytorch": [19.0, 20.0, 21.0],
        "candidate": [9.0, 10.0, 11.0],
    }
    assert "µs" in figure.layout.xaxis.title.text


def test_contestants_without_samples_are_drawn_by_their_quantiles():
    figure = plots.latencies(case(contestants={"candidate": contestant("candidate", 10.0)}))

    assert figure.data[0].error_x.array[0] == pytest.approx(2.0)
    assert figure.data[0].error_x.arrayminus[0] == pytest.approx(1.0)


def test_a_rooflines_ridge_stands_at_peak_over_bandwidth():
    figure = plots.roofline([], gb_per_s=100.0, peak_tflop_per_s=1.0)

    assert figure.data[0].x[1] == pytest.approx(10.0)  # 1e12 FLOP/s over 100e9 byte/s
    assert figure.data[0].y[1] == pytest.approx(1.0)


def test_a_point_on_the_roofline_says_which_part_of_it_was_reached():
    point = plots.roofline_point(case(tflop_per_s=0.025, gb_per_s=50.0))
    figure = plots.roofline([point], gb_per_s=100.0, peak_tflop_per_s=1.0)

    assert point.flop_per_byte == pytest.approx(0.5)
    assert figure.data[1].name == "candidate: 50% of the roofline"


def test_a_case_without_flop_has_no_point_on_the_roofline():
    assert plots.roofline_point(case()) is None


@pytest.mark.parametrize(("bandwidth", "peak"), [(0.0, 1.0), (1.0, -1.0)])
def test_a_roofline_of_nothing_is_refused(bandwidth, peak):
    with pytest.raises(UsageError, match="above 0"):
        plots.roofline([], gb_per_s=bandwidth, peak_tflop_per_s=peak)


def test_html_is_one_file_that_loads_nothing_from_the_network(tmp_path):
    path = plots.save(plots.progress(plots.progress_points(ROWS)), tmp_path / "progress.html")
    text = path.read_text()

    assert "Plotly.newPlot" in text
    assert 'src="http' not in text


def test_an_html_file_does_not_let_a_hypothesis_end_its_script(tmp_path):
    row = Row(experiment=0, decision="keep", correctness="PASS", description="</script><script>alert(1)")
    path = plots.save(plots.progress(plots.progress_points([row]), title="</script>"), tmp_path / "progress.html")

    assert "<script>alert(1)" not in path.read_text()


@pytest.mark.browser
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF")])
def test_images_are_drawn_in_the_format_of_the_suffix(tmp_path, suffix, start):
    path = plots.save(plots.progress(plots.progress_points(ROWS)), tmp_path / f"progress{suffix}")

    assert path.read_bytes().startswith(start)


def test_without_a_browser_the_message_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "missing"))

    with pytest.raises(BackendUnavailable, match=r"apt-get install chromium.*\.html"):
        plots.save(plots.progress([]), tmp_path / "progress.png")


def test_an_unknown_suffix_is_refused_with_those_that_work(tmp_path):
    with pytest.raises(UsageError, match=r"\.html, \.png, \.svg, \.pdf"):
        plots.save(plots.progress([]), tmp_path / "progress.jpeg2000")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        plots.save(plots.progress([]), tmp_path / "nowhere" / "progress.html")
