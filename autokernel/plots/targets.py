"""Figure of a profile: where the device's time goes, and what each target could give.

Each bar is one target's share of the device time, split into the part at its floor and the part above
it; the markers are the speedups of the whole model by Amdahl, with the target at its floor and for free.

Units: percent of the device time; speedup of the device time of one pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from autokernel.plots.style import (
    BLACK,
    ORANGE,
    SKY,
    dress,
    escape,
    fit_legend,
    hatch,
    lighter,
    nice_step,
    size_of,
    text_width,
)
from autokernel.plots.table import Table

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport, Target

__all__ = ["amdahl", "profile_table"]


def amdahl(report: ProfileReport, *, title: str = "", columns: int | None = None) -> go.Figure:
    """Draw the targets of a profile, in the order to work in.

    Args:
        report: From `autokernel.profile`, or loaded from a file.
        title: Model and device by default; none on paper.
        columns: Width in columns of a page; the screen's when None.
    """
    size = size_of(columns)
    shown = list(report.targets[: 8 if columns else 16])
    labels = [f"{_label(target, 24 if columns == 1 else 34)} " for target in shown]
    above = [100 * _above(target) for target in shown]
    below = [100 * target.share - part for target, part in zip(shown, above, strict=True)]
    rest = 100 * (1 - sum(target.share for target in shown))
    if rest > 0.005:
        labels, above, below = [*labels, "all others, and unclaimed "], [*above, 0.0], [*below, rest]
    figure = go.Figure()
    figure.add_trace(
        go.Bar(
            y=labels, x=above, orientation="h", name="above the floor: can be recovered",
            marker={"color": ORANGE}, hovertext=[_hover(target) for target in shown], hoverinfo="text",
        )
    )  # fmt: skip
    figure.add_trace(
        go.Bar(
            y=labels, x=below, orientation="h", name="at the floor, or no floor known",
            marker={"color": SKY, "pattern": hatch("/", lighter(SKY))}, hoverinfo="skip",
        )
    )  # fmt: skip
    for name, values, symbol in (
        ("speedup of the model with it at its floor", [target.gain for target in shown], "diamond"),
        ("Amdahl ceiling: with it for free", [target.ceiling for target in shown], "circle-open"),
    ):
        texts = [f"{value:.2f}×" if math.isfinite(value) else "∞" for value in values]
        figure.add_trace(_markers(labels[: len(shown)], values, texts, name, symbol))
    heading = title or ("" if columns else f"{escape(report.model)} on {escape(report.device.get('name', ''))}")
    height = size.small * (10 + 1.7 * len(labels)) if columns else 180 + 32 * len(labels)
    dress(figure, "Share of the device time (%)", "", title=heading, columns=columns, height=height)
    top = {"text": "Speedup of the model (×)", "font": {"size": size.font}, "standoff": 12 if columns else 20}
    most = max([1.05, *(one.ceiling for one in shown if math.isfinite(one.ceiling))])
    figure.update_layout(
        barmode="stack", legend={"traceorder": "normal"},
        xaxis2={
            "title": top, "overlaying": "x", "side": "top", "showgrid": False, "tickfont": {"size": size.small},
            "range": [1 - 0.03 * (most - 1), 1 + 1.06 * (most - 1)], "tick0": 1, "dtick": nice_step(most - 1),
        },
    )  # fmt: skip
    if columns:
        figure.update_layout(margin={"t": 34 + figure.layout.margin.t})
        figure.update_traces(marker_size=size.marker, selector={"type": "scatter"})
        fit_legend(figure, columns, left=text_width(labels, size.small))
    else:
        figure.update_layout(margin={"l": 250, "r": 40, "t": 100, "b": 130})
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def _above(target: Target) -> float:
    return target.share * target.recoverable_us / target.device_us if target.device_us else 0.0


def _label(target: Target, most: int) -> str:
    return escape(target.name if len(target.name) <= most else target.name[: most - 1] + "…")


def _hover(target: Target) -> str:
    lines = [f"<b>{escape(target.title)}</b>", f"{target.device_us:.0f} µs in {target.calls} calls"]
    if target.floor_us is not None:
        lines.append(f"floor {target.floor_us:.0f} µs")
    lines.append(escape(target.variants[0].label))
    lines += [escape(path or "the model") for path in target.paths[:3]]
    return "<br>".join(lines)


def _markers(labels: list[str], values: list[float], texts: list[str], name: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        y=labels,
        x=[value if math.isfinite(value) else None for value in values],
        xaxis="x2",
        mode="markers",
        name=name,
        hovertext=texts,
        hoverinfo="text",
        marker={"color": BLACK, "symbol": symbol, "size": 9},
    )


def profile_table(report: ProfileReport) -> Table:
    """The targets of a profile: time, share, floor, and what the whole could gain."""
    rows = tuple(
        (one.name, one.calls, one.device_us, 100 * one.share, one.floor_us, one.gain,
         one.ceiling if math.isfinite(one.ceiling) else None)
        for one in report.targets
    )  # fmt: skip
    columns = (
        "target",
        "calls",
        "time (µs)",
        "share (%)",
        "floor (µs)",
        "model, at its floor (×)",
        "model, for free (×)",
    )
    return Table(columns, rows, f"{report.model} on {report.device.get('name', '')}")
