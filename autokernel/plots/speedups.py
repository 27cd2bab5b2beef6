"""Speedups of the best kernels as bars: over PyTorch eager and ``torch.compile``, a group for each operation.

Intervals are of 95 %; a bar without one comes from a file that does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.measurement import Ratio
from autokernel.plots.series import Series
from autokernel.plots.style import BLACK, BLUE, ORANGE, dress, escape, fit_legend, hatch
from autokernel.plots.table import Table

__all__ = ["speedup", "speedup_table"]

_RIVALS = {  # contestant -> (name in the legend, colour, pattern)
    "pytorch": ("over PyTorch eager", BLUE, ""),
    "compile": ("over torch.compile", ORANGE, "/"),
}
_GAP = 0.24  # of the room of a group


def speedup(series: Sequence[Series], *, title: str = "", columns: int | None = None) -> go.Figure:
    """Draw the speedup of each series' best kernel; 1 is a rival's own speed.

    Args:
        series: A group of bars for each, in this order.
        title: Above the figure.
        columns: Width in columns of a page; the screen's when None.

    Raises:
        UsageError: No series has a measured speedup.
    """
    bars = [(one, {rival: _of_best(one, rival) for rival in _RIVALS}) for one in series]
    rivals = [rival for rival in _RIVALS if any(found[rival] is not None for _, found in bars)]
    if not rivals:
        raise UsageError(
            "no speedup to draw: none of these runs has a kernel that was timed beside PyTorch "
            f"({', '.join(one.label for one in series) or 'no run at all'})"
        )
    figure = go.Figure()
    size = dress(figure, "", "Speedup (×)", title=_title(title, columns), columns=columns)
    width = (1 - _GAP) / len(rivals)
    shown: list[tuple[float, Ratio]] = []
    for at, rival in enumerate(rivals):
        points = [(group, found[rival]) for group, (_, found) in enumerate(bars)]
        here = [(group - 0.5 * (1 - _GAP) + width * (at + 0.5), ratio) for group, ratio in points if ratio is not None]
        figure.add_trace(_bars(rival, here, width, paper=size.paper))
        shown += here
    figure.add_hline(y=1.0, line={"color": BLACK, "width": 1, "dash": "dash"})
    if len(shown) * size.small * 2.6 < size.width:
        _add_values(figure, shown, size.small)
    labels = [escape(one.label) for one, _ in bars]
    longest = max(map(len, labels)) * size.small * 0.62 * len(labels)
    figure.update_xaxes(
        tickvals=list(range(len(bars))), ticktext=labels, range=[-0.55, len(bars) - 0.45], showgrid=False, ticks="",
        tickangle=-35 if longest > size.width * 0.9 else 0,
    )  # fmt: skip
    top = max(max(ratio.value, min(ratio.high, 1.5 * ratio.value)) for _, ratio in shown)
    figure.update_yaxes(range=[0, max(top, 1.0) * 1.14])
    figure.update_layout(showlegend=True)
    fit_legend(figure, columns)
    return figure


def speedup_table(series: Sequence[Series]) -> Table:
    """The best kernel of each series: latency, share of the roofline, speedups with their intervals."""
    rows = []
    for one in series:
        best = one.best
        over = [_of_best(one, rival) for rival in ("pytorch", "compile")]
        start = one.kept[0].speedup if one.kept and one.measured is None else None
        fraction = best.fraction_of_peak if best else None
        rows.append(
            (
                one.label, one.backend, one.dtype, best.number if best and one.measured is None else None,
                best.latency_us if best else None, None if fraction is None else 100 * fraction, start, *over,
            )
        )  # fmt: skip
    columns = ("operation", "backend", "dtype", "experiment", "latency (µs)", "roofline (%)") + (
        "starter over PyTorch", "over PyTorch", "over torch.compile",
    )  # fmt: skip
    note = f"Speedups with 95 % confidence intervals where they were recorded. {_devices(series)}".strip()
    return Table(columns, tuple(rows), note).without_empty_columns()


def _devices(series: Sequence[Series]) -> str:
    names = list(dict.fromkeys(one.device for one in series if one.device))
    return f"Device: {'; '.join(names)}." if names else ""


def _of_best(one: Series, rival: str) -> Ratio | None:
    best = one.best
    return None if best is None or not best.passed else one.ratio(best, rival)


def _title(title: str, columns: int | None) -> str:
    return title or ("" if columns else "Speedup of the best kernels")


def _bars(rival: str, points: Sequence[tuple[float, Ratio]], width: float, *, paper: bool) -> go.Bar:
    name, colour, pattern = _RIVALS[rival]
    spread = {
        "type": "data", "symmetric": False, "color": BLACK,
        "thickness": 0.8 if paper else 1.4, "width": 2 if paper else 4,
        "array": [max(0.0, ratio.high - ratio.value) for _, ratio in points],
        "arrayminus": [max(0.0, ratio.value - ratio.low) for _, ratio in points],
    }  # fmt: skip
    return go.Bar(
        x=[x for x, _ in points], y=[ratio.value for _, ratio in points], width=width * 0.94, name=name, error_y=spread,
        marker={
            "color": colour, "line": {"color": BLACK, "width": 0.6},
            "pattern": hatch(pattern, colour),
        },
        hovertemplate="%{y:.3f}×<extra></extra>",
    )  # fmt: skip


def _add_values(figure: go.Figure, points: Sequence[tuple[float, Ratio]], font: float) -> None:
    """The figures above the bars, on white, so that the line at 1 does not cross them."""
    for x, ratio in points:
        y = ratio.high if ratio.high <= 1.5 * ratio.value else ratio.value  # a longer interval runs on above it
        figure.add_annotation(
            x=x, y=y, text=f"{ratio.value:.2f}", showarrow=False, yanchor="bottom", yshift=1.5, font={"size": font},
            bgcolor="rgba(255,255,255,0.85)", borderpad=0,
        )  # fmt: skip
