"""A figure of the suite: how much faster our kernel is than each alternative, configuration by configuration.

The axis is logarithmic: twice as fast and half as fast are equally far from 1.  A cross is the floor.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from autokernel.suite.outcome import Outcome

__all__ = ["speedups"]

# Okabe and Ito's palette, which remains distinct with impaired colour vision; each contestant also has its symbol.
_MARKS = {
    "pytorch": ("#0072B2", "circle"),
    "composed": ("#56B4E9", "circle-open"),
    "narrow": ("#56B4E9", "diamond-open"),
    "compile": ("#D55E00", "square"),
    "liger": ("#009E73", "triangle-up"),
    "quack": ("#CC79A7", "diamond"),
}
_OTHER = ("#999999", "star")


def speedups(outcomes: Sequence[Outcome], *, title: str = "") -> go.Figure:
    """Draw the measured outcomes; those that were not measured have no place in it.

    Args:
        outcomes: From `autokernel.suite.bench`.
        title: Device and versions, for example.
    """
    measured = [one for one in outcomes if one.status == "measured"]
    rows = [html.escape(f"{one.operation} {one.label}") for one in measured]
    names = [name for name in _MARKS if any(name in one.speedups for one in measured)]
    names += sorted({name for one in measured for name in one.speedups} - set(names))
    figure = go.Figure()
    for name in names:
        points = [(row, one.speedups[name]) for row, one in zip(rows, measured, strict=True) if name in one.speedups]
        colour, symbol = _MARKS.get(name, _OTHER)
        figure.add_trace(
            go.Scatter(
                x=[ratio.value for _row, ratio in points],
                y=[row for row, _ratio in points],
                mode="markers",
                name=name,
                marker={"color": colour, "symbol": symbol, "size": 9},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [ratio.high - ratio.value for _row, ratio in points],
                    "arrayminus": [ratio.value - ratio.low for _row, ratio in points],
                },
            )
        )
    floors = [(row, one.share_of_floor) for row, one in zip(rows, measured, strict=True) if one.share_of_floor]
    figure.add_trace(
        go.Scatter(
            x=[share for _row, share in floors], y=[row for row, _share in floors], mode="markers", name="the floor",
            marker={"color": "black", "symbol": "x-thin-open", "size": 9},
        )
    )  # fmt: skip
    figure.add_vline(x=1, line={"color": "black", "width": 1})
    figure.update_layout(
        template="plotly_white",
        title=title,
        height=160 + 26 * max(1, len(rows)),
        margin={"l": 330, "r": 30, "t": 60, "b": 60},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
    )
    figure.update_xaxes(title="time of the other over the time of our kernel (above 1: ours is faster)", type="log")
    figure.update_yaxes(autorange="reversed")
    return figure
