"""Figure of a profile: where the device's time goes, and what each target could give.

Each bar is one target's share of the device time, split into the part at its floor and the part above it; the
markers are the speedups of the whole model by Amdahl, with the target at its floor and for free.

Units: percent of the device time; speedup of the device time of one pass.
"""

from __future__ import annotations

import math

import plotly.graph_objects as go

from autokernel.plots.style import BLACK, BLUE, ORANGE, dress, escape
from autokernel.profiling import ProfileReport, Target

__all__ = ["amdahl"]

_MOST = 16  # targets that have a bar of their own; the rest is one bar


def amdahl(report: ProfileReport, *, title: str = "") -> go.Figure:
    """Draw the targets of a profile, in the order to work in.

    Args:
        report: From `autokernel.profile`, or loaded from a file.
        title: Model and device by default.
    """
    shown = list(report.targets[:_MOST])
    labels = [f"{_label(target)} " for target in shown]
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
            marker={"color": BLUE, "pattern": {"shape": "/"}}, hoverinfo="skip",
        )
    )  # fmt: skip
    for name, values, symbol in (
        ("speedup of the model with it at its floor", [target.gain for target in shown], "diamond"),
        ("Amdahl ceiling: with it for free", [target.ceiling for target in shown], "circle-open"),
    ):
        texts = [f"{value:.2f}×" if math.isfinite(value) else "∞" for value in values]
        figure.add_trace(_markers(labels[: len(shown)], values, texts, name, symbol))
    heading = title or f"{escape(report.model)} on {escape(report.device.get('name', ''))}"
    dress(figure, "Share of the device time (%)", "", title=heading)
    figure.update_layout(
        barmode="stack",
        height=180 + 32 * len(labels),
        margin={"l": 250, "r": 40, "t": 100, "b": 130},
        xaxis2={
            "title": "Speedup of the model (×)", "overlaying": "x", "side": "top", "showgrid": False,
        },
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def _above(target: Target) -> float:
    return target.share * target.recoverable_us / target.device_us if target.device_us else 0.0


def _label(target: Target) -> str:
    return escape(target.name if len(target.name) <= 34 else target.name[:33] + "…")


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
