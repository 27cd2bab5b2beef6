"""Progress over the experiments: one run with every experiment, or several runs by their kept kernels.

Units: a speedup is over PyTorch eager, above 1 means faster; intervals are of 95 %.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.experiment import Experiment
from autokernel.measurement import Ratio
from autokernel.plaintext import one_line
from autokernel.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, dress, escape
from autokernel.results import Row

__all__ = ["OUTCOMES", "ProgressPoint", "experiment_points", "progress", "progress_points"]

OUTCOMES: dict[str, tuple[str, str, str]] = {  # outcome -> (name in the legend, colour, plotly symbol)
    "baseline": ("starting kernel", BLACK, "diamond"),
    "keep": ("kept", GREEN, "circle"),
    "revert": ("reverted: no certain gain", BLUE, "circle-open"),
    "waiting": ("waiting for a person", ORANGE, "triangle-up"),
    "rejected": ("rejected by the verifier", VERMILION, "x"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressPoint:
    """One experiment of a run as the progress figure shows it.

    Attributes:
        experiment: Its number.
        outcome: A key of `OUTCOMES`.
        speedup: Over PyTorch with its interval, or None if it was not timed.
        hypothesis: What the agent wrote; shown on hover.
        commit: The commit that holds the candidate.
        correctness: PASS, FAIL, TIMEOUT or CRASH.
    """

    experiment: int
    outcome: str
    speedup: Ratio | None = None
    hypothesis: str = ""
    commit: str = ""
    correctness: str = ""


def progress_points(
    rows: Iterable[Row | Mapping[str, Any]], intervals: Mapping[int, Ratio] | None = None
) -> list[ProgressPoint]:
    """Turn rows of results.tsv into points.

    Args:
        rows: `autokernel.results.Row` objects, or mappings with the columns of results.tsv whose
            values may be text or numbers; an empty text or a speedup of 0 means no figure.
        intervals: Speedup over PyTorch with its interval by experiment, where the records have it.

    Raises:
        UsageError: A row has no number of an experiment.
    """
    points = []
    for entry in rows:
        row = entry if isinstance(entry, Mapping) else entry.fields()
        number = _number(row.get("experiment"))
        if number is None:
            raise UsageError(f"a row of results.tsv has no experiment number: {one_line(dict(row))}")
        value = _number(row.get("speedup_vs_pytorch"))
        ratio = (intervals or {}).get(int(number)) or (Ratio(value, value, value) if value else None)
        points.append(
            ProgressPoint(
                experiment=int(number),
                outcome=_outcome(str(row.get("decision") or ""), str(row.get("correctness") or "")),
                speedup=ratio,
                hypothesis=str(row.get("description") or ""),
                commit=str(row.get("commit") or ""),
                correctness=str(row.get("correctness") or ""),
            )
        )
    return points


def experiment_points(experiments: Iterable[Experiment]) -> list[ProgressPoint]:
    """Turn the experiments of a run into points, with their intervals; those not yet judged are left out."""
    return [
        ProgressPoint(
            experiment=experiment.number,
            outcome=_outcome(experiment.decision, experiment.correctness),
            speedup=experiment.speedup,
            hypothesis=experiment.hypothesis,
            commit=experiment.commit,
            correctness=experiment.correctness,
        )
        for experiment in experiments
        if experiment.correctness
    ]


def _outcome(decision: str, correctness: str) -> str:
    if correctness not in ("PASS", ""):
        return "rejected"
    return decision if decision in OUTCOMES else "waiting"


def _number(value: Any) -> float | None:
    try:
        figure = math.nan if value is None or value == "" else float(value)
    except (TypeError, ValueError):
        return None
    return figure if math.isfinite(figure) else None


def progress(points: Sequence[ProgressPoint], *, title: str = "") -> go.Figure:
    """Draw each experiment's speedup over PyTorch, and the kernel on the branch as a step line.

    Bars are 95 % confidence intervals.  The step line is the measured speedup of the last kept
    kernel; as each is measured anew against PyTorch, it can dip by the noise of a measurement.
    Experiments without a time (rejected ones) stand in a strip below.

    Args:
        points: In the order of the experiments; may be empty.
        title: Operation, device and dtype, for example.
    """
    figure = go.Figure()
    if any(point.speedup is not None for point in points):
        _add_best_line(figure, points)
    figure.add_hline(y=1.0, line={"color": GREY, "width": 1.5, "dash": "dash"})
    figure.add_annotation(
        x=1, xref="paper", y=1.0, text="PyTorch eager (1.0×)", showarrow=False, xanchor="right", yanchor="bottom",
        font={"color": "#555555", "size": 12},
    )  # fmt: skip
    for outcome in OUTCOMES:
        chosen = [point for point in points if point.outcome == outcome]
        for timed in (True, False):
            group = [point for point in chosen if (point.speedup is not None) is timed]
            if group:
                figure.add_trace(_outcome_trace(outcome, group, legend=timed or len(group) == len(chosen)))
    dress(figure, "Experiment", "Speedup over PyTorch eager (×)", title=title or "Progress of the run")
    figure.update_yaxes(range=_speedup_range(points))
    last = max((point.experiment for point in points), default=1)
    figure.update_xaxes(range=[-0.9, last + 0.9], tick0=0, dtick=max(1, round(last / 15)))
    if any(point.speedup is None for point in points):
        _add_strip(figure)
    return figure


def _add_strip(figure: go.Figure) -> None:
    figure.update_layout(
        yaxis={"domain": [0.12, 1]},
        yaxis2={
            "domain": [0, 0.1], "range": [-1, 1], "showgrid": False, "zeroline": False, "showline": True,
            "linecolor": BLACK, "tickvals": [0], "ticktext": ["not timed"], "fixedrange": True, "ticks": "",
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


def _add_best_line(figure: go.Figure, points: Sequence[ProgressPoint]) -> None:
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
    line = {"color": GREEN, "width": 2, "shape": "hv"}
    figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name="kernel on the branch", hoverinfo="skip"))


def _outcome_trace(outcome: str, points: Sequence[ProgressPoint], *, legend: bool) -> go.Scatter:
    """Points that are all timed, or all not timed; those stand on the strip, the second y axis."""
    name, colour, symbol = OUTCOMES[outcome]
    ratios = [point.speedup for point in points]
    return go.Scatter(
        x=[point.experiment for point in points],
        y=[0.0 if ratio is None else ratio.value for ratio in ratios],
        yaxis="y2" if ratios[0] is None else "y",
        legendgroup=outcome,
        showlegend=legend,
        error_y=None
        if ratios[0] is None
        else {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if ratio is None else max(0.0, ratio.high - ratio.value) for ratio in ratios],
            "arrayminus": [0.0 if ratio is None else max(0.0, ratio.value - ratio.low) for ratio in ratios],
            "thickness": 1.2,
            "width": 3,
        },
        mode="markers",
        name=name,
        marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2 if "open" in symbol else 0.5}},
        hovertext=[_hover(point) for point in points],
        hoverinfo="text",
    )


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
