"""Latency of each contestant of one timing case, sample by sample.  Units: microseconds."""

from __future__ import annotations

import plotly.graph_objects as go

from autokernel.measurement import CaseTiming
from autokernel.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, dress, escape

__all__ = ["latencies"]

_CONTESTANTS = {"candidate": GREEN, "incumbent": BLUE, "pytorch": GREY, "compile": PURPLE}


def latencies(case: CaseTiming, *, title: str = "") -> go.Figure:
    """Draw the samples of every contestant of one timing case as box plots with all points.

    Args:
        case: Contestants without samples are drawn as their median with the 0.2 to 0.8 quantiles.
        title: The case's label when empty.
    """
    figure = go.Figure()
    for name, contestant in reversed(list(case.contestants.items())):
        colour = _CONTESTANTS.get(name, ORANGE)
        if contestant.samples_us:
            figure.add_trace(
                go.Box(
                    x=list(contestant.samples_us), name=escape(name), boxpoints="all", jitter=0.6, pointpos=0,
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
            figure.add_trace(go.Scatter(x=[contestant.latency_us], y=[escape(name)], error_x=spread, marker=marker))
    if case.floor_us:
        figure.add_vline(x=case.floor_us, line={"color": BLACK, "dash": "dot", "width": 1.5})
        figure.add_annotation(
            x=case.floor_us, y=1, yref="paper", text="floor (roofline)", showarrow=False, xanchor="left", yanchor="top"
        )
    dress(figure, "Latency of one call (µs)", "", title=title or escape(case.label))
    figure.update_layout(showlegend=False)
    figure.update_xaxes(rangemode="tozero" if case.floor_us else "normal")
    return figure
