"""Where the device's time goes, and what each target could give: a profile as a chart."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autokernel.plaintext import one_line
from autokernel_widgets.bars import bar
from autokernel_widgets.chart import Chart, axis, base_layout
from autokernel_widgets.markup import node
from autokernel_widgets.outcomes import microseconds
from autokernel_widgets.ranking_table import recoverable, speedup_words
from autokernel_widgets.report_source import ReportSource
from autokernel_widgets.what_if import Choice

if TYPE_CHECKING:
    from autokernel.profiling import Target

__all__ = ["AmdahlChart"]

_ORANGE, _BLUE = "#E69F00", "#0072B2"
_MOST = 16  # targets that have a bar of their own; the rest is one bar


class AmdahlChart(Chart):
    """Each bar is one target's share of the device time: the part above its floor, then the part at it.

    The markers are speedups of the whole model by Amdahl: with the target at its floor, and for free.  A stroke
    across a bar is what would be left of a chosen target.

    Args:
        source: The profile.
        choice: What a person chose.
        live: Follow the profile's file.

    Attributes:
        selected: The place of the target that is described below the chart, from 0.
    """

    def __init__(self, source: ReportSource, choice: Choice, *, live: bool = True) -> None:
        self._choice = choice
        super().__init__(source, selected=0, live=live)  # type: ignore[arg-type]
        choice.observe(lambda change: self.refresh(), "speedups")

    def _draw(self) -> dict[str, Any]:
        assert isinstance(self._source, ReportSource)
        report = self._source.report()
        shown = report.targets[:_MOST]
        labels = [_label(target) for target in shown]
        rest = 1 - sum(target.share for target in shown)
        self.label = f"Shares of {one_line(report.model)}: " + "; ".join(
            f"{target.name} {100 * target.share:.0f} %" for target in shown[:5]
        )
        traces = [_above(shown, labels), _below(shown, labels, rest), *_markers(shown, labels)]
        kept = self._kept(shown, labels)
        return {"data": [*traces, *kept], "layout": _layout(len(labels) + (rest > 5e-5))}

    def _kept(self, shown: Sequence[Target], labels: Sequence[str]) -> list[dict[str, Any]]:
        """What would be left of the chosen targets."""
        found = [(label, one) for label, one in zip(labels, shown, strict=True) if one.name in self._choice.speedups]
        if not found:
            return []
        left = [100 * one.share / self._choice.speedups[one.name] for _, one in found]
        words = [
            f"{self._choice.speedups[one.name]:.2f}× would leave {x:.1f} %"
            for x, (_, one) in zip(left, found, strict=True)
        ]
        marker = {"symbol": "line-ns", "size": 24, "color": "$ink", "line": {"width": 3, "color": "$ink"}}
        return [
            {"type": "scatter", "mode": "markers", "name": "left by your what-if", "x": left, "marker": marker,
             "y": [label for label, _ in found], "hovertext": words, "hoverinfo": "text"}
        ]  # fmt: skip

    def _sketch(self) -> list[Any]:
        assert isinstance(self._source, ReportSource)
        rows = []
        for target in self._source.report().targets[:_MOST]:
            above = recoverable(target)
            parts = [(above, "open", "above the floor"), (target.share - above, "faint", "at the floor")]
            words = f"{target.name}: {100 * target.share:.1f} % of the device time"
            cells = (target.name, f"{100 * target.share:.1f} %", bar(parts, words, width=360))
            rows.append(node("tr", *(node("td", cell) for cell in cells)))
        return node("table", node("tbody", *rows), class_="ak-table")


def _above(shown: Sequence[Target], labels: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "bar", "orientation": "h", "name": "above the floor", "y": labels,
        "x": [100 * recoverable(target) for target in shown], "customdata": list(range(len(shown))),
        "hovertext": [_hover(target) for target in shown], "hoverinfo": "text",
        "marker": {"color": _ORANGE, "line": {"color": _ORANGE, "width": 1}},
    }  # fmt: skip


def _below(shown: Sequence[Target], labels: Sequence[str], rest: float) -> dict[str, Any]:
    lengths = [100 * (target.share - recoverable(target)) for target in shown]
    names = list(labels)
    if rest > 5e-5:
        names, lengths = [*names, "all others, unclaimed "], [*lengths, 100 * rest]
    return {
        "type": "bar", "orientation": "h", "name": "at it, or none known", "y": names, "x": lengths,
        "hoverinfo": "skip", "marker": {"color": _BLUE, "opacity": 0.75, "pattern": {"shape": "/"}},
    }  # fmt: skip


def _markers(shown: Sequence[Target], labels: Sequence[str]) -> list[dict[str, Any]]:
    drawn = []
    for name, symbol, values in (
        ("model, it at its floor", "diamond", [target.gain for target in shown]),
        ("model, it for free", "circle-open", [target.ceiling for target in shown]),
    ):
        drawn.append(
            {"type": "scatter", "mode": "markers", "name": name, "xaxis": "x2", "y": labels,
             "x": [value if math.isfinite(value) else None for value in values],
             "hovertext": [f"{name}: {speedup_words(value)}" for value in values], "hoverinfo": "text",
             "marker": {"symbol": symbol, "size": 9, "color": "$ink", "line": {"width": 1.5, "color": "$ink"}}}
        )  # fmt: skip
    return drawn


def _layout(rows: int) -> dict[str, Any]:
    layout = base_layout("share of the device time (%)", "", height=166 + 26 * rows)
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False, "automargin": True, "fixedrange": True}
    layout["xaxis"] |= {"rangemode": "tozero"}
    above = axis("speedup of the model (×)", overlaying="x", side="top", showgrid=False, tickmode="auto", nticks=7)
    # Two columns at any width, so that the rows take the same room everywhere.
    legend = {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top", "traceorder": "normal",
              "entrywidth": 0.48, "entrywidthmode": "fraction", "font": {"size": 11}}  # fmt: skip
    return {**layout, "xaxis2": above, "barmode": "stack", "bargap": 0.35, "legend": legend,
            "margin": {"l": 20, "r": 20, "t": 112, "b": 46}}  # fmt: skip


def _label(target: Target) -> str:
    name = target.name if len(target.name) <= 34 else target.name[:33] + "…"
    return html.escape(one_line(name), quote=False) + " "


def _hover(target: Target) -> str:
    """Plotly reads a small subset of HTML in its texts, so names are escaped."""
    lines = [f"{microseconds(target.device_us)} µs in {target.calls} calls, {100 * target.share:.1f} % of the time"]
    if target.floor_us is not None:
        lines.append(f"floor {microseconds(target.floor_us)} µs")
    lines.append(f"model {speedup_words(target.gain)} with it at its floor, {speedup_words(target.ceiling)} for free")
    lines += [target.variants[0].label, ", ".join(path or "the model" for path in target.paths[:3])]
    plain = [html.escape(one_line(line, limit=120), quote=False) for line in lines if line]
    return "<br>".join([f"<b>{html.escape(one_line(target.name), quote=False)}</b>", *plain])
