"""Speedup over PyTorch of each experiment of a run, with the kernel on the branch as a step line."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.experiment import Experiment
from autokernel.measurement import Measurement
from autokernel.plaintext import clean, one_line
from autokernel.runfolder import RunFolder
from autokernel_widgets.chart import Chart, axis, base_layout
from autokernel_widgets.following import Unreadable
from autokernel_widgets.markup import node
from autokernel_widgets.outcomes import OUTCOMES, Outcome, interval, outcome_of, times
from autokernel_widgets.sketch import legend, progress

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["SpeedupChart", "compile_speedup", "roofline_limit"]

_GREEN, _GREY, _PURPLE = "#009E73", "#808080", "#CC79A7"


class SpeedupChart(Chart):
    """Every experiment as a point; its shape and colour say what became of it.

    The bars are 95 % confidence intervals.  The step line is the kernel on the branch.  Dashed lines are
    PyTorch eager (1), ``torch.compile`` where it was timed, and the roofline limit where the device's
    measured figures bound all timing cases.  What was not timed stands in a strip below.

    Args:
        run: A run folder, its path, or the session that drives it in this process.
        selected: The experiment that is marked; -1 for none.
        live: Follow the run by itself.
    """

    def __init__(self, run: RunFolder | Session | str | Path, *, selected: int = -1, live: bool = True) -> None:
        self._hovers: dict[int, tuple[Experiment, str]] = {}
        self._limit: tuple[str, float | None] = ("", None)
        self._drawn: tuple[list[Experiment], dict[str, Any]] | None = None
        super().__init__(run, selected=selected, live=live)

    def _draw(self) -> dict[str, Any]:
        experiments = [one for one in self._source.read(lambda folder: folder.experiments) if one.correctness]
        if self._drawn is None or experiments != self._drawn[0]:
            best = self._source.read(lambda folder: folder.best)
            self._drawn = experiments, self._figure(experiments, best)
        return self._drawn[1]

    def _figure(self, experiments: list[Experiment], best: Experiment | None) -> dict[str, Any]:
        target = self._source.read(lambda folder: folder.target)
        what = f"{target.operation}, {target.backend}, {target.dtype} on {target.device}"
        reached = f"; the best is {times(best.speedup)}" if best and best.speedup else ""
        self.label = f"Speedup over PyTorch of {len(experiments)} experiments: {what}{reached}"
        traces = [_steps(experiments)] if experiments else []
        for outcome in OUTCOMES.values():
            chosen = [one for one in experiments if outcome_of(one) is outcome]
            for timed in (True, False):
                group = [one for one in chosen if (one.speedup is not None) is timed]
                if group and timed:
                    traces.append(_bars(group, outcome))
                if group:
                    traces.append(self._points(group, outcome, timed=timed, legend=timed or len(group) == len(chosen)))
        return {"data": traces, "layout": _layout(experiments, self._levels(best))}

    def _points(self, group: list[Experiment], outcome: Outcome, *, timed: bool, legend: bool) -> dict[str, Any]:
        return {
            "type": "scatter", "mode": "markers", "name": outcome.label, "legendgroup": outcome.key,
            "showlegend": legend, "x": [one.number for one in group], "customdata": [one.number for one in group],
            "y": [one.speedup.value if one.speedup else 0 for one in group], "yaxis": "y" if timed else "y2",
            "hovertext": [self._hover(one) for one in group], "hoverinfo": "text", "marker": outcome.marker(9),
        }  # fmt: skip

    def _hover(self, one: Experiment) -> str:
        known = self._hovers.get(one.number)
        if known is None or known[0] is not one:
            known = self._hovers[one.number] = (one, _hover(one))
        return known[1]

    def _levels(self, best: Experiment | None) -> list[tuple[float, str, str]]:
        """The horizontal lines: height, words, colour."""
        levels = [(1.0, "PyTorch eager", _GREY)]
        if best is None:
            return levels
        compiled = compile_speedup(best)
        if compiled is not None:
            levels.append((compiled, "torch.compile", _PURPLE))
        if self._limit[0] != best.commit:
            self._limit = best.commit, self._read_limit(best.number)
        if self._limit[1] is not None:
            levels.append((self._limit[1], "roofline limit", "$ink"))
        return levels

    def _read_limit(self, number: int) -> float | None:
        try:
            _, measurement, confirmation = self._source.read(lambda folder: folder.judgement(number))
        except Unreadable:
            return None  # the chart is still worth seeing without this line
        return roofline_limit(confirmation or measurement)

    def _sketch(self) -> list[Any]:
        experiments = self._source.read(lambda folder: folder.experiments)
        kept = [one for one in experiments if one.decision in ("keep", "baseline")]
        rows = [
            node("tr", node("td", str(one.number)), node("td", times(one.speedup)), node("td", interval(one.speedup)),
                 node("td", one_line(one.hypothesis)))
            for one in kept
        ]  # fmt: skip
        head = node("tr", *(node("th", title) for title in ("n", "over PyTorch", "95 % interval", "what was kept")))
        table = node("table", node("thead", head), node("tbody", *rows), class_="ak-table")
        return node("div", progress(experiments), legend(), table)


def roofline_limit(measurement: Measurement | None) -> float | None:
    """The highest speedup over PyTorch that the device's measured figures allow, over all timing cases.

    If case *i* takes the share *w_i* of the time today and could be *s_i* times as fast, the whole could
    be *sum(w) / sum(w_i / s_i)* times as fast (Amdahl).  None unless every case has a floor.
    """
    if measurement is None or not measurement.cases:
        return None
    share, total = 0.0, 0.0
    for case in measurement.cases:
        pytorch = case.contestants.get("pytorch")
        if not case.floor_us or pytorch is None or not pytorch.latency_us:
            return None
        share += case.weight * case.floor_us / pytorch.latency_us
        total += case.weight
    return total / share if share > 0 else None


def compile_speedup(experiment: Experiment) -> float | None:
    """How many times faster ``torch.compile`` is than PyTorch eager, from their ratios to the same kernel."""
    eager, compiled = experiment.speedups.get("pytorch"), experiment.speedups.get("compile")
    return eager.value / compiled.value if eager and compiled and compiled.value else None


def _steps(experiments: Sequence[Experiment]) -> dict[str, Any]:
    best = [one for one in experiments if one.decision in ("baseline", "keep") and one.speedup is not None]
    x: list[float] = [one.number for one in best]
    y = [one.speedup.value for one in best if one.speedup is not None]
    if best:
        x.append(experiments[-1].number + 0.5)
        y.append(y[-1])
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "name": "kernel on the branch", "hoverinfo": "skip",
        "line": {"color": _GREEN, "width": 2, "shape": "hv"},
    }  # fmt: skip


def _bars(group: Sequence[Experiment], outcome: Outcome) -> dict[str, Any]:
    """The intervals as one broken line: plotly's own error bars are an element each, and slow when there are many."""
    ratios = [(one.number, one.speedup) for one in group if one.speedup is not None]
    return {
        "type": "scatter", "mode": "lines", "name": f"95 % interval, {outcome.label}", "legendgroup": outcome.key,
        "showlegend": False, "hoverinfo": "skip", "connectgaps": False,
        "x": [x for number, _ in ratios for x in (number, number, None)],
        "y": [y for _, ratio in ratios for y in (ratio.low, ratio.high, None)],
        "line": {"color": outcome.colour, "width": 1, "simplify": False},
    }  # fmt: skip


def _layout(experiments: Sequence[Experiment], levels: Sequence[tuple[float, str, str]]) -> dict[str, Any]:
    layout = base_layout("experiment", "speedup over PyTorch (×)", height=380)
    low, high = _range(experiments)
    shapes, notes = [], []
    if any(height > 1.6 * high for height, _, _ in levels):
        high += 0.12 * (high - low)  # room for the words at the top
    for height, words, colour in levels:
        said, above = f"{words} ({height:.2f}×)", height > high
        if above and height <= 1.6 * high:
            high, above = 1.05 * height, False
        if not above:
            line = {"color": colour, "width": 1.3, "dash": "dash"}
            shapes.append(
                {
                    "type": "line",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "yref": "y",
                    "y0": height,
                    "y1": height,
                    "line": line,
                }
            )
        notes.append(
            {"x": 1, "xref": "paper", "xanchor": "right", "showarrow": False, "font": {"color": colour, "size": 11},
             "y": 1 if above else height, "yref": "paper" if above else "y", "yanchor": "top" if above else "bottom",
             "text": f"{said}, above" if above else said}
        )  # fmt: skip
    last = max((one.number for one in experiments), default=1)
    layout["xaxis"] |= {"range": [-0.9, last + 0.9], "dtick": max(1, round(last / 12)), "tick0": 0}
    layout["yaxis"] |= {"range": [low, high]}
    if any(one.speedup is None for one in experiments):
        layout["yaxis"]["domain"] = [0.14, 1]
        layout["yaxis2"] = axis(
            "", domain=[0, 0.1], range=[-1, 1], showgrid=False, tickvals=[0], ticktext=["not timed"], fixedrange=True
        )
        layout["xaxis"]["anchor"] = "y2"
    return {**layout, "shapes": shapes, "annotations": notes}


def _range(experiments: Sequence[Experiment]) -> tuple[float, float]:
    values = [1.0]
    for one in experiments:
        if one.speedup is not None:
            # An interval many times as long as its value would flatten all the others.
            values += [one.speedup.value, min(one.speedup.high, 1.5 * one.speedup.value), one.speedup.low]
    margin = 0.08 * (max(values) - min(values)) or 0.1
    return max(0.0, min(values) - margin), max(values) + margin


def _hover(one: Experiment) -> str:
    """Plotly reads a small subset of HTML in its texts, so what an agent wrote is escaped."""
    lines = [f"<b>experiment {one.number}: {outcome_of(one).label}</b>"]
    if one.speedup is not None:
        lines.append(f"{times(one.speedup)} PyTorch, 95 % interval {interval(one.speedup)}")
    if one.correctness != "PASS":
        lines.append(html.escape(f"{one.correctness}: {one_line(one.reason, limit=90)}", quote=False))
    words = one_line(one.hypothesis, limit=240)
    lines += [html.escape(line, quote=False) for line in textwrap.wrap(words, 70)]
    lines.append(f"commit {html.escape(clean(one.commit[:12]))}")
    return "<br>".join(lines)
