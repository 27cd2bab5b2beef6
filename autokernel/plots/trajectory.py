"""Progress over the experiments: one run with every experiment, or several runs by their kept kernels.

Units: a speedup is over PyTorch eager, above 1 means faster; intervals are of 95 %.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.measurement import Ratio
from autokernel.plaintext import one_line
from autokernel.plots.points import OUTCOMES, ProgressPoint, outcome_of
from autokernel.plots.series import Series
from autokernel.plots.style import (
    BLACK,
    DASHES,
    GREEN,
    GREY,
    PALETTE,
    SYMBOLS,
    Size,
    dress,
    escape,
    fit_legend,
)  # fmt: skip
from autokernel.plots.table import Table

__all__ = [
    "frontiers",
    "progress",
    "progress_table",
]


def progress(points: Sequence[ProgressPoint], *, title: str = "", columns: int | None = None) -> go.Figure:
    """Draw each experiment's speedup over PyTorch, and the kernel on the branch as a step line.

    Bars are 95 % confidence intervals.  The step line is the measured speedup of the last kept
    kernel; as each is measured anew against PyTorch, it can dip by the noise of a measurement.
    Experiments without a time (rejected ones) stand in a strip below.

    Args:
        points: In the order of the experiments; may be empty.
        title: Operation, device and dtype, for example.
        columns: Width in columns of a page; the screen's when None.
    """
    figure = go.Figure()
    size = dress(figure, "Experiment", "Speedup over PyTorch eager (×)",
                 title=title or ("" if columns else "Progress of the run"), columns=columns)  # fmt: skip
    if any(point.speedup is not None for point in points):
        _add_best_line(figure, points, size)
    _add_eager(figure, size)
    for outcome in OUTCOMES:
        chosen = [point for point in points if point.outcome == outcome]
        for timed in (True, False):
            group = [point for point in chosen if (point.speedup is not None) is timed]
            if group:
                legend = timed or len(group) == len(chosen)
                figure.add_trace(_outcome_trace(outcome, group, size, legend=legend))
    figure.update_yaxes(range=_speedup_range(points))
    _count_experiments(figure, max((point.experiment for point in points), default=1), columns)
    if any(point.speedup is None for point in points):
        _add_strip(figure, size)
    fit_legend(figure, columns)
    return figure


def frontiers(series: Sequence[Series], *, title: str = "", columns: int | None = None) -> go.Figure:
    """Draw the kernels on the branches of several runs as step lines, each kept kernel with its interval.

    Args:
        series: A line for each; the axis is logarithmic if the speedups lie more than a factor of 8 apart.
        title: Above the figure.
        columns: Width in columns of a page; the screen's when None.

    Raises:
        UsageError: No kernel of these runs was timed beside PyTorch.
    """
    figure = go.Figure()
    size = dress(figure, "Experiment", "Speedup over PyTorch eager (×)",
                 title=title or ("" if columns else "Progress of the runs"), columns=columns)  # fmt: skip
    values = [1.0]
    for at, one in enumerate(series):
        kept = [(each.number, each.speedup) for each in one.kept if each.speedup is not None]
        if kept:
            figure.add_trace(_branch(one, at, kept, size))
            values += [end for _, ratio in kept for end in (ratio.low, min(ratio.high, 1.5 * ratio.value))]
    if len(values) == 1:
        raise UsageError(f"no kernel was timed beside PyTorch in {', '.join(one.label for one in series) or 'no run'}")
    low, high = min(values), max(values)
    logarithmic = high > 8 * low > 0
    _add_eager(figure, size, logarithmic=logarithmic)
    if logarithmic:
        marks = [step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)]
        figure.update_yaxes(
            type="log", range=[math.log10(low * 0.85), math.log10(high * 1.2)], tickvals=marks,
            ticktext=[f"{mark:g}" for mark in marks],
        )  # fmt: skip
    else:
        figure.update_yaxes(range=[max(0.0, low - 0.08 * (high - low)), high + 0.08 * (high - low)])
    _count_experiments(figure, max(one.experiments[-1].number for one in series if one.experiments), columns)
    fit_legend(figure, columns)
    return figure


def progress_table(series: Sequence[Series]) -> Table:
    """All experiments of the runs: what became of them, their speedups, and what was tried."""
    rows = []
    for one in series:
        for each in one.experiments:
            decided = OUTCOMES[outcome_of(each.decision, each.correctness)][0]
            gain = one.ratio(each, "incumbent")
            rows.append((one.label, each.number, decided, each.latency_us, each.speedup, gain, each.hypothesis))
    columns = ("run", "experiment", "outcome", "latency (µs)", "over PyTorch", "over the best before", "hypothesis")
    return Table(columns, tuple(rows), "Speedups with 95 % confidence intervals where they were recorded.")


def _branch(one: Series, at: int, kept: Sequence[tuple[int, Ratio]], size: Size) -> go.Scatter:
    """The kept kernels as markers on a step line, which goes on to the last experiment."""
    colour = PALETTE[at % len(PALETTE)]
    end = kept[-1][1].value
    ratios = [*(ratio for _, ratio in kept), Ratio(end, end, end)]
    return go.Scatter(
        x=[*(number for number, _ in kept), one.experiments[-1].number + 0.5], y=[ratio.value for ratio in ratios],
        mode="lines+markers", name=escape(one.label), error_y={**_interval(ratios, size), "color": colour},
        line={"color": colour, "width": size.line, "shape": "hv", "dash": DASHES[at % len(DASHES)]},
        marker={
            "color": colour, "symbol": SYMBOLS[at % len(SYMBOLS)], "size": [1.2 * size.marker] * len(kept) + [0],
            "line": {"width": 0.5, "color": BLACK}, "opacity": 1,
        },
        hovertemplate="experiment %{x}: %{y:.3f}×<extra></extra>",
    )  # fmt: skip


def _count_experiments(figure: go.Figure, last: int, columns: int | None) -> None:
    most = 8 if columns == 1 else 15
    figure.update_xaxes(range=[-0.9, last + 0.9], tick0=0, dtick=max(1, round(last / most)))


def _add_eager(figure: go.Figure, size: Size, *, logarithmic: bool = False) -> None:
    figure.add_hline(y=1.0, line={"color": GREY, "width": 0.8 * size.line, "dash": "dash"})
    figure.add_annotation(
        x=1, xref="paper", y=0.0 if logarithmic else 1.0, yref="y", text="PyTorch eager (1.0×)", showarrow=False,
        xanchor="right", yanchor="bottom", font={"color": "#555555", "size": size.small if size.paper else 12},
    )  # fmt: skip


def _add_strip(figure: go.Figure, size: Size) -> None:
    figure.update_layout(
        yaxis={"domain": [0.12, 1]},
        yaxis2={
            "domain": [0, 0.1], "range": [-1, 1], "showgrid": False, "zeroline": False, "showline": True,
            "linecolor": BLACK, "tickvals": [0], "ticktext": ["not timed"], "fixedrange": True, "ticks": "",
            "tickfont": {"size": size.small}, "automargin": True,
        },
        xaxis={"anchor": "y2"},
    )  # fmt: skip


def _speedup_range(points: Sequence[ProgressPoint]) -> tuple[float, float]:
    values = [1.0]
    for point in points:
        if point.speedup is not None:
            # An interval many times as long as its value would flatten all the others.
            values += [point.speedup.value, min(point.speedup.high, 1.5 * point.speedup.value), point.speedup.low]
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1
    return max(0.0, low - margin), high + margin


def _add_best_line(figure: go.Figure, points: Sequence[ProgressPoint], size: Size) -> None:
    x: list[float] = []
    y: list[float] = []
    for point in points:
        if point.outcome in ("baseline", "keep") and point.speedup is not None:
            x.append(point.experiment)
            y.append(point.speedup.value)
    if not x:
        return
    x.append(max(point.experiment for point in points) + 0.5)
    y.append(y[-1])
    line = {"color": GREEN, "width": size.line, "shape": "hv"}
    figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name="kernel on the branch", hoverinfo="skip"))


def _outcome_trace(outcome: str, points: Sequence[ProgressPoint], size: Size, *, legend: bool) -> go.Scatter:
    """Points that are all timed, or all not timed; those stand on the strip, the second y axis."""
    name, colour, symbol = OUTCOMES[outcome]
    ratios = [point.speedup for point in points]
    timed = [ratio for ratio in ratios if ratio is not None]
    outline = 1.2 if size.paper else 2
    return go.Scatter(
        x=[point.experiment for point in points], y=[0.0 if ratio is None else ratio.value for ratio in ratios],
        yaxis="y" if timed else "y2", legendgroup=outcome, showlegend=legend,
        error_y=_interval(timed, size) if timed else None, mode="markers", name=name,
        marker={
            "color": colour, "symbol": symbol, "size": size.marker,
            "line": {"width": outline if "open" in symbol else 0.5},
        },
        hovertext=[_hover(point) for point in points], hoverinfo="text",
    )  # fmt: skip


def _interval(ratios: Sequence[Ratio], size: Size) -> dict[str, object]:
    return {
        "type": "data", "symmetric": False, "thickness": 0.8 if size.paper else 1.2, "width": 2 if size.paper else 3,
        "array": [max(0.0, ratio.high - ratio.value) for ratio in ratios],
        "arrayminus": [max(0.0, ratio.value - ratio.low) for ratio in ratios],
    }  # fmt: skip


def _hover(point: ProgressPoint) -> str:
    lines = [f"<b>experiment {point.experiment}: {OUTCOMES[point.outcome][0]}</b>"]
    if point.speedup is not None:
        ratio = point.speedup
        lines.append(f"{ratio.value:.3f}× PyTorch, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}")
    if point.correctness:
        lines.append(f"correctness: {escape(point.correctness)}")
    if point.hypothesis:
        lines += [escape(line) for line in textwrap.wrap(one_line(point.hypothesis, limit=400), 70)]
    if point.commit:
        lines.append(f"commit {escape(point.commit[:12])}")
    return "<br>".join(lines)
