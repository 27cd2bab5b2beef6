"""Figures of a run: progress over the experiments, distributions of latency, position on the roofline.

Each function takes plain data and returns a plotly figure; nothing here reads a file or needs
torch.  Colours are those of Okabe and Ito, which colour-blind readers tell apart, and every class
has a symbol of its own, so that a grey print still reads.

Units: microseconds, TFLOP/s, GB/s (10^9 bytes), FLOP/byte.
Source of the colours: M. Okabe and K. Ito, Color Universal Design, 2008.
"""

from __future__ import annotations

import dataclasses
import html
import math
import os
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from autokernel.errors import BackendUnavailable, UsageError
from autokernel.experiment import Experiment
from autokernel.measurement import CaseTiming, Ratio
from autokernel.plaintext import clean, one_line
from autokernel.results import Row

__all__ = [
    "FORMATS",
    "OUTCOMES",
    "ProgressPoint",
    "RooflinePoint",
    "experiment_points",
    "find_browser",
    "latencies",
    "progress",
    "progress_points",
    "roofline",
    "roofline_point",
    "save",
]

FORMATS = (".html", ".png", ".svg", ".pdf")

_BLACK, _GREY = "#000000", "#767676"
_GREEN, _BLUE, _VERMILION, _ORANGE, _PURPLE = "#009E73", "#0072B2", "#D55E00", "#E69F00", "#CC79A7"

OUTCOMES: dict[str, tuple[str, str, str]] = {  # outcome -> (name in the legend, colour, plotly symbol)
    "baseline": ("starting kernel", _BLACK, "diamond"),
    "keep": ("kept", _GREEN, "circle"),
    "revert": ("reverted: no certain gain", _BLUE, "circle-open"),
    "waiting": ("waiting for a person", _ORANGE, "triangle-up"),
    "rejected": ("rejected by the verifier", _VERMILION, "x"),
}
_CONTESTANTS = {"candidate": _GREEN, "incumbent": _BLUE, "pytorch": _GREY, "compile": _PURPLE}


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
    figure.add_hline(y=1.0, line={"color": _GREY, "width": 1.5, "dash": "dash"})
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
    _style(figure, title or "Progress of the run", "Experiment", "Speedup over PyTorch eager (×)")
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
            "linecolor": _BLACK, "tickvals": [0], "ticktext": ["not timed"], "fixedrange": True, "ticks": "",
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
    line = {"color": _GREEN, "width": 2, "shape": "hv"}
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
        lines.append(f"correctness: {_escape(point.correctness)}")
    if point.hypothesis:
        lines += [_escape(line) for line in textwrap.wrap(one_line(point.hypothesis, limit=400), 70)]
    if point.commit:
        lines.append(f"commit {_escape(point.commit[:12])}")
    return "<br>".join(lines)


def _escape(text: str) -> str:
    return html.escape(clean(text), quote=False)  # plotly reads a small subset of HTML in its texts


def latencies(case: CaseTiming, *, title: str = "") -> go.Figure:
    """Draw the samples of every contestant of one timing case as box plots with all points.

    Args:
        case: Contestants without samples are drawn as their median with the 0.2 to 0.8 quantiles.
        title: The case's label when empty.
    """
    figure = go.Figure()
    for name, contestant in reversed(list(case.contestants.items())):
        colour = _CONTESTANTS.get(name, _ORANGE)
        if contestant.samples_us:
            figure.add_trace(
                go.Box(
                    x=list(contestant.samples_us), name=_escape(name), boxpoints="all", jitter=0.6, pointpos=0,
                    marker={"color": colour, "size": 3, "opacity": 0.45}, line={"color": colour, "width": 1.8},
                    fillcolor="rgba(255,255,255,0)", orientation="h",
                )
            )  # fmt: skip
        else:
            spread = {
                "type": "data",
                "symmetric": False,
                "array": [contestant.high_us - contestant.latency_us],
                "arrayminus": [contestant.latency_us - contestant.low_us],
            }
            marker = {"color": colour, "size": 11}
            figure.add_trace(go.Scatter(x=[contestant.latency_us], y=[_escape(name)], error_x=spread, marker=marker))
    if case.floor_us:
        figure.add_vline(x=case.floor_us, line={"color": _BLACK, "dash": "dot", "width": 1.5})
        figure.add_annotation(
            x=case.floor_us, y=1, yref="paper", text="floor (roofline)", showarrow=False, xanchor="left", yanchor="top"
        )
    _style(figure, title or _escape(case.label), "Latency of one call (µs)", "")
    figure.update_layout(showlegend=False)
    figure.update_xaxes(rangemode="tozero" if case.floor_us else "normal")
    return figure


@dataclasses.dataclass(frozen=True)
class RooflinePoint:
    """A kernel's place on the roofline: FLOP per byte moved at the least, and rate in TFLOP/s."""

    label: str
    flop_per_byte: float
    tflop_per_s: float


def roofline_point(case: CaseTiming, label: str = "candidate") -> RooflinePoint | None:
    """The candidate's place on the roofline, or None if the spec gives no FLOP or no bytes."""
    if not case.tflop_per_s or not case.gb_per_s:
        return None
    return RooflinePoint(label, case.tflop_per_s * 1e3 / case.gb_per_s, case.tflop_per_s)


def roofline(
    points: Sequence[RooflinePoint], *, gb_per_s: float, peak_tflop_per_s: float, device: str = ""
) -> go.Figure:
    """Draw ``min(peak, intensity * bandwidth)`` on logarithmic axes, and the kernels below it.

    Args:
        points: Kernels on the same device and dtype.
        gb_per_s: Bandwidth of the device's memory, above 0; the measured figure by preference.
        peak_tflop_per_s: Peak rate for the dtype, above 0; the measured figure by preference.
        device: Its name, for the title.

    Raises:
        UsageError: Bandwidth or peak is not above 0.

    Source: S. Williams, A. Waterman and D. Patterson, Roofline, CACM 52(4), 2009.
    """
    if gb_per_s <= 0 or peak_tflop_per_s <= 0:
        raise UsageError(f"a roofline needs a bandwidth and a peak above 0, got {gb_per_s} and {peak_tflop_per_s}")
    ridge = peak_tflop_per_s * 1e3 / gb_per_s
    intensities = [point.flop_per_byte for point in points] + [ridge]
    left, right = min(intensities) / 4, max(intensities) * 4
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(
            x=[left, ridge, right], y=[left * gb_per_s / 1e3, peak_tflop_per_s, peak_tflop_per_s], mode="lines",
            line={"color": _BLACK, "width": 2}, hoverinfo="skip",
            name=f"roofline: {gb_per_s:,.0f} GB/s, {peak_tflop_per_s:,.3g} TFLOP/s",
        )
    )  # fmt: skip
    symbols = ("circle", "square", "diamond", "triangle-up", "x")
    for index, point in enumerate(points):
        colour = (_GREEN, _BLUE, _ORANGE, _PURPLE, _VERMILION)[index % 5]
        share = point.tflop_per_s / min(peak_tflop_per_s, point.flop_per_byte * gb_per_s / 1e3)
        figure.add_trace(
            go.Scatter(
                x=[point.flop_per_byte], y=[point.tflop_per_s], mode="markers",
                name=f"{_escape(point.label)}: {share:.0%} of the roofline",
                marker={"color": colour, "symbol": symbols[index % 5], "size": 12},
            )
        )  # fmt: skip
    title = f"Roofline of {_escape(device)}" if device else "Roofline"
    _style(figure, title, "Arithmetic intensity (FLOP/byte)", "Rate (TFLOP/s)")
    figure.update_xaxes(type="log", dtick="D2")
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def _style(figure: go.Figure, title: str, x_title: str, y_title: str) -> None:
    axis = {"showgrid": True, "gridcolor": "#E4E4E4", "linecolor": _BLACK, "showline": True, "ticks": "outside"}
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.02, "xanchor": "left", "font": {"size": 17}},
        font={"family": "DejaVu Sans, Arial, sans-serif", "size": 13},
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"},
        margin={"l": 95, "r": 25, "t": 60, "b": 110},
        hoverlabel={"align": "left"},
        width=900,
        height=520,
    )
    figure.update_xaxes(title=x_title, zeroline=False, **axis)
    figure.update_yaxes(title=y_title, zeroline=False, **axis)


def find_browser() -> str | None:
    """The browser that kaleido would draw with: ``BROWSER_PATH``, or a Chrome or Chromium on the path."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return named if Path(named).is_file() else None
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((found for found in map(shutil.which, names) if found), None)


def save(figure: go.Figure, path: str | Path) -> Path:
    """Write the figure in the format that the path's suffix names.

    ``.html`` is one file that needs no network; ``.png``, ``.svg`` and ``.pdf`` are drawn by
    kaleido, which needs a Chrome or Chromium.

    Returns:
        The path.

    Raises:
        UsageError: Another suffix, or the folder does not exist.
        BackendUnavailable: kaleido or the browser is missing; HTML always works.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"cannot write a figure as {path.name!r}; end the name in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {str(path.parent)!r} of the figure does not exist; create it first")
    if suffix == ".html":
        figure.write_html(path, include_plotlyjs=True, full_html=True)
        return path
    browser = find_browser()
    if browser is None:
        raise BackendUnavailable(
            f"no Chrome or Chromium to draw {path.name!r} with; install one (Debian: apt-get install chromium), "
            "set BROWSER_PATH to its program, or write .html"
        )
    try:
        figure.write_image(path, scale=2 if suffix == ".png" else 1)
    except Exception as error:  # kaleido and choreographer raise many kinds, none of them documented
        raise BackendUnavailable(
            f"drawing {path.name!r} with {browser} failed: {one_line(error)}; install kaleido and a working "
            "Chromium, or write .html"
        ) from error
    return path
