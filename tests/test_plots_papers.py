"""Figures for papers: where their figures come from, what they say, how large they are, and their tables."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from autokernel import plots
from autokernel.errors import UsageError
from autokernel.experiment import Experiment, State
from autokernel.measurement import Ratio
from autokernel.plots.attribution import product
from autokernel.profiling import ProfileReport
from autokernel.profiling.report import Totals
from autokernel.profiling.targets import Target, Variant
from autokernel.results import COLUMNS
from tests.command_line import autokernel
from tests.recorded_run import record_run
from tests.scripted import measurement_of, verdict_of

TEN = "experiment\ttag\tkernel_type\tthroughput_tflops\tlatency_us\tpct_peak\tspeedup_vs_pytorch\tcorrectness\t" \
      "peak_vram_mb\tdescription\n"  # fmt: skip


def experiment(number, decision, hypothesis, gain=None, speedup=None):
    ratios = {"incumbent": gain, "pytorch": speedup}
    return Experiment(
        number=number, state=State.DECIDED, decision=decision, hypothesis=hypothesis, correctness="PASS",
        speedups={name: Ratio(value, value * 0.9, value * 1.1) for name, value in ratios.items() if value},
    )  # fmt: skip


def series(label="softmax", **changes):
    experiments = (
        experiment(0, "baseline", "starter", speedup=0.5),
        experiment(1, "keep", "NUM_WARPS 4 -> 8: more in flight", 1.5, 0.75),
        experiment(2, "revert", "[tiling] smaller tiles, tier 1", 0.9, 0.7),
        experiment(3, "keep", "[vectors] 16-byte loads, tier 2 of the manual", 2.0, 1.5),
        experiment(4, "revert", "PREFETCH_ROWS 0 -> 2", 1.0, 1.5),
        experiment(5, "revert", "try something", 1.0, 1.5),
    )
    return plots.Series(**{"label": label, "experiments": experiments, **changes})


def target(name, share, operation="softmax"):
    variant = Variant(shape={"M": 8, "N": 8}, dtype="float32", calls=1, device_us=1000 * share)
    return Target(name=name, title=name, operation=operation, device_us=1000 * share, share=share, variants=(variant,))


def report(*targets):
    totals = Totals(
        wall_us=1000, device_us=1000, busy_us=1000, host_us=0, recognised_us=900, listed_us=100, unclaimed_us=0
    )
    return ProfileReport(
        model="Net", device={"name": "CPU"}, inputs=(), training=False, backward=False, targets=targets, totals=totals,
        passes=1, seconds=1.0,
    )  # fmt: skip


def bars(figure):
    return {trace.name: trace for trace in figure.data if trace.type == "bar"}


# Where experiments come from


def test_a_run_and_its_results_file_are_the_same_series(tmp_path):
    run = record_run(tmp_path / "rmsnorm-1")
    (from_run,) = plots.load_series(run)
    (from_file,) = plots.load_series(run / "results.tsv")

    assert from_run.experiments == from_file.experiments
    assert from_run.best.number == 1
    assert from_run.best.speedup.low == pytest.approx(1.29)


def test_a_results_file_alone_has_speedups_without_intervals(tmp_path):
    (tmp_path / "copy.tsv").write_text((record_run(tmp_path / "run") / "results.tsv").read_text())
    (alone,) = plots.load_series(tmp_path / "copy.tsv")

    assert alone.best.speedup == Ratio(1.3, 1.3, 1.3)
    assert alone.ratio(alone.best, "incumbent") == Ratio(1.3, 1.29, 1.31)
    assert [one.decision for one in alone.experiments] == ["baseline", "keep", "revert", "revert"]


def test_ten_columns_are_decided_by_the_rule_of_the_script_that_wrote_them(tmp_path):
    rows = (
        "0\tbaseline\tmatmul\t100\t50\t10%\t0.5x\tPASS\t1\tstarter\n"
        "1\tb128\tmatmul\t100.9\t49\t10%\t0.51x\tPASS\t1\ttoo little\n"
        "2\tb256\tmatmul\t150\t33\t15%\t0.75x\tPASS\t1\tbetter\n"
        "3\twild\tmatmul\t900\t5\t90%\t4.5x\tFAIL\t1\twrong\n"
    )
    (tmp_path / "results.tsv").write_text(TEN + rows)
    (old,) = plots.load_series(tmp_path / "results.tsv")

    assert [one.decision for one in old.experiments] == ["baseline", "revert", "keep", "revert"]
    assert old.best.speedups["incumbent"].value == pytest.approx(1.5)
    assert "does not say what was kept" in old.notes[-1]
    assert {part.group: part.kept for part in plots.contributions(old, "tag")} == {"b256": 1, "b128": 0, "wild": 0}


def test_one_file_of_two_operations_is_two_series(tmp_path):
    row = "\tt\t{}\t100\t50\t10\t0.5\tPASS\t1\tstarter\n"
    (tmp_path / "r.tsv").write_text(TEN + "0" + row.format("matmul") + "0" + row.format("softmax"))

    assert [one.label for one in plots.load_series(tmp_path / "r.tsv")] == ["matmul", "softmax"]


def test_a_measurement_of_bench_is_a_series_with_torch_compile(tmp_path):
    measured = measurement_of(50.0).to_dict()
    measured["speedups"]["compile"] = {"value": 1.1, "low": 1.0, "high": 1.2}
    data = {"verdict": verdict_of(accepted=True).to_dict(), "measurement": measured, "confirmation": None}
    (tmp_path / "best.json").write_text(json.dumps(data))
    (one,) = plots.load_series(tmp_path / "best.json")

    assert one.best.speedup.value == pytest.approx(2.0)
    assert list(bars(plots.speedup([one]))) == ["over PyTorch eager", "over torch.compile"]


@pytest.mark.parametrize("content", ["", "a\tb\n1\t2\n", "\t".join(COLUMNS) + "\n"])
def test_a_file_without_experiments_is_refused_by_name(tmp_path, content):
    (tmp_path / "x.tsv").write_text(content)

    with pytest.raises(UsageError, match="x.tsv"):
        plots.load_series(tmp_path / "x.tsv")


def test_runs_of_one_operation_are_told_apart_by_their_names():
    labelled = plots.label_uniquely([series(name="a"), series(name="b"), series("rmsnorm", name="c")])

    assert [one.label for one in labelled] == ["a", "b", "rmsnorm"]
    with pytest.raises(UsageError, match="2 labels for 1 runs"):
        plots.label_uniquely([series()], ["x", "y"])


# What they say


def test_speedup_bars_stand_at_the_best_kernel_and_reach_over_its_interval():
    trace = bars(plots.speedup([series()]))["over PyTorch eager"]

    assert list(trace.y) == [1.5]
    assert trace.error_y.array[0] == pytest.approx(0.15)


def test_runs_without_a_time_have_no_speedup_to_draw():
    with pytest.raises(UsageError, match="no speedup to draw"):
        plots.speedup([series(experiments=(experiment(0, "baseline", "starter"),))])


def test_tiers_are_read_from_the_hypothesis_then_from_the_constants():
    found = {step.experiment.number: (step.group[:6], step.source) for step in plots.steps(series())}

    assert found[1] == ("tier 1", "by the constants changed")
    assert found[3] == ("tier 2", "by the hypothesis")
    assert found[4] == ("tier 2", "by the constants changed")
    assert found[5] == ("not sa", "by nothing")


def test_the_tier_that_a_model_was_asked_for_comes_before_the_constants():
    class Asked(plots.Series):
        def trace(self, number):
            return {"strategy": {"tier": 3}} if number in (1, 3) else {}

    found = {step.experiment.number: step.group[:6] for step in plots.steps(Asked(**vars(series())))}

    assert (found[1], found[3], found[4]) == ("tier 3", "tier 2", "tier 2")


def test_gains_of_groups_multiply_to_the_gain_of_the_run():
    parts = plots.contributions(series())
    total = product(part.gain for part in parts)

    assert {part.group[:6]: (part.tried, part.kept) for part in parts} == {
        "tier 1": (2, 1), "tier 2": (2, 1), "not sa": (1, 0),
    }  # fmt: skip
    assert total.value == pytest.approx(3.0)
    assert total.low < 3.0 < total.high


def test_the_interval_of_a_product_is_wider_than_of_its_factors():
    ratio = product([Ratio(2.0, 1.8, 2.2), Ratio(1.5, 1.35, 1.65)])

    assert ratio.low / ratio.value < 0.9 < 1.1 < ratio.high / ratio.value


def test_steps_end_at_the_product_of_all_gains():
    figure = plots.ablation([series()], by="step")
    trace = bars(figure)["what the change brought"]

    assert [base + width for base, width in zip(trace.base, trace.x, strict=True)] == pytest.approx([1.5, 3.0])
    with pytest.raises(UsageError, match="one run"):
        plots.ablation([series(), series()], by="step")


def test_a_models_time_shrinks_by_amdahls_law():
    parts = plots.profile_parts(report(target("softmax-a", 0.6), target("other", 0.4, "")), {"softmax-a": 3.0})
    figure = plots.amdahl_change(parts)

    assert plots.model_speedup(parts).value == pytest.approx(1 / 0.6)
    assert list(bars(figure)["softmax-a"].x) == pytest.approx([60, 20])


def test_a_slower_kernel_leaves_a_model_as_it_is():
    part = plots.Part("softmax", 0.5, Ratio(0.5, 0.4, 0.6))

    assert part.after == 0.5
    assert plots.model_speedup([part]) == Ratio(1.0, 1.0, 1.0)


def test_a_campaigns_part_of_a_target_speeds_up_that_part_only():
    parts = plots.profile_parts(report(target("a", 1.0)), {"a": plots.Part("a", 0.5, Ratio(2, 2, 2))})

    assert [(part.share, part.after) for part in parts] == [(0.5, 0.25), (0.5, 0.5)]


@pytest.mark.parametrize("parts", [[plots.Part("a", 0.5)], [plots.Part("a", 1.5, Ratio(2, 2, 2))]])
def test_before_and_after_of_nothing_is_refused(parts):
    with pytest.raises(UsageError):
        plots.amdahl_change(parts)


# How large they are


FIGURES = {
    "progress": lambda columns: plots.progress(plots.experiment_points(series().experiments), columns=columns),
    "frontiers": lambda columns: plots.frontiers([series(), series("rmsnorm")], columns=columns),
    "speedup": lambda columns: plots.speedup([series(), series("rmsnorm")], columns=columns),
    "ablation": lambda columns: plots.ablation([series(), series("rmsnorm")], columns=columns),
    "steps": lambda columns: plots.ablation([series()], by="step", columns=columns),
    "change": lambda columns: plots.amdahl_change([plots.Part("a", 0.5, Ratio(2, 2, 2))], columns=columns),
    "profile": lambda columns: plots.amdahl(report(target("a", 1.0)), columns=columns),
    "roofline": lambda columns: plots.roofline(
        [plots.RooflinePoint("a", 1.0, 0.01)], gb_per_s=100, peak_tflop_per_s=1, columns=columns
    ),
}


@pytest.mark.parametrize(("columns", "inches"), [(1, 3.5), (2, 7.16)])
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_for_print_is_as_wide_as_its_columns_with_text_of_7_to_9_points(name, columns, inches):
    layout = FIGURES[name](columns).layout
    sizes = [float(size) for size in re.findall(r'"size":\s*([0-9.]+)', json.dumps(_fonts(layout.to_plotly_json())))]

    assert layout.width / 96 == pytest.approx(inches, abs=0.01)
    assert sizes
    assert all(6.99 <= size * 72 / 96 <= 9.01 for size in sizes)
    assert not layout.title.text


def _fonts(data):
    """All fonts in a layout."""
    if isinstance(data, dict):
        own = [value for key, value in data.items() if key.endswith("font") and "size" in value]
        return own + [font for value in data.values() for font in _fonts(value)]
    return [font for value in data for font in _fonts(value)] if isinstance(data, (list, tuple)) else []


def test_series_are_told_apart_by_colour_and_by_shape():
    lines = plots.frontiers([series(str(number)) for number in range(7)]).data

    assert len({line.line.color for line in lines}) == 7
    assert len({line.marker.symbol for line in lines}) == 7


def test_another_number_of_columns_is_refused():
    with pytest.raises(UsageError, match="3 columns"):
        plots.size_of(3)


@pytest.mark.browser
def test_a_pdf_of_a_column_is_a_vector_of_three_and_a_half_inches(tmp_path):
    data = plots.save(FIGURES["speedup"](1), tmp_path / "speedup.pdf").read_bytes()
    width = float(re.search(rb"/MediaBox \[0 0 ([0-9.]+)", data)[1])

    assert width == pytest.approx(3.5 * 72, abs=0.5)
    assert b"/Font" in data


# Tables


TABLE = plots.Table(("run", "gain (×)"), (("a_b & c|d", Ratio(1.5, 1.25, 2.0)), ("e", None)), "100 %")


def test_a_table_in_latex_has_the_rules_of_booktabs_and_escapes_what_latex_reads():
    assert TABLE.to_latex().splitlines() == [
        r"\begin{tabular}{lr}", r"\toprule", r"run & gain ($\times$) \\", r"\midrule",
        r"a\_b \& c\textbar{}d & 1.50 (1.25 to 2.00) \\", r"e &  \\", r"\bottomrule", r"\end{tabular}", "% 100 %",
    ]  # fmt: skip


def test_a_table_in_markdown_keeps_its_cells():
    assert TABLE.to_markdown().splitlines()[2] == r"| a\_b & c\|d | 1.50 (1.25 to 2.00) |"


def test_a_table_in_csv_has_columns_for_both_ends_of_an_interval():
    rows = list(csv.reader(io.StringIO(TABLE.to_csv())))

    assert rows == [["run", "gain (×)", "gain (×) low", "gain (×) high"], ["a_b & c|d", "1.5", "1.25", "2.0"],
                    ["e", "", "", ""]]  # fmt: skip


def test_a_table_of_another_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.tex, \.md, \.csv"):
        TABLE.save(tmp_path / "table.xls")


# The command


def test_the_command_draws_a_run_as_before(tmp_path):
    record_run(tmp_path / "runs" / "rmsnorm-1")
    done = autokernel("plot", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote progress.html\n"


def test_the_command_draws_several_runs_with_their_table(tmp_path):
    for name in ("rmsnorm-1", "rmsnorm-2"):
        record_run(tmp_path / "runs" / name)
    done = autokernel("plot", "rmsnorm-1", "rmsnorm-2", "--kind", "speedup", "--columns", 1, "-o", "s.html", "--table",
                      "s.md", cwd=tmp_path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "| rmsnorm-2 | cpp | float32 | 1 |" in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind", "pie"], "progress, speedup, roofline, amdahl, ablation"),
        (["nothing.tsv"], "no run 'nothing.tsv'"),
        (["--kind", "amdahl"], "needs a campaign, or --profile"),
        (["--columns", "3"], "3 columns"),
        (["--kind", "roofline"], "no kernel to place"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_words(tmp_path, words, message, monkeypatch, capsys):
    from autokernel.cli import main

    record_run(tmp_path / "runs" / "rmsnorm-1")
    monkeypatch.chdir(tmp_path)

    assert main(["plot", *words]) == 2
    assert message in capsys.readouterr().err
