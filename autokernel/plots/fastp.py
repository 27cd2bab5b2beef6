"""fast_p of KernelBench problems: the share solved faster than p times, a curve for each level and rival."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.plots.style import DASHES, PALETTE, SYMBOLS, dress, escape, fit_legend
from autokernel.plots.table import Cell, Table

__all__ = ["FastP", "fast_p", "fast_p_table"]

_RIVALS = {"pytorch": "over PyTorch eager", "compile": "over torch.compile"}


@dataclasses.dataclass(frozen=True)
class FastP:
    """One level.

    Attributes:
        name: Such as ``level 1``.
        problems: How many are counted.
        refused: How many could not be judged, and are not counted.
        fast: By rival (``pytorch``, ``compile``) and threshold, the share of problems, 0 to 1.
    """

    name: str
    problems: int
    refused: int
    fast: Mapping[str, Mapping[float, float]]


def fast_p(levels: Sequence[FastP], *, title: str = "", columns: int | None = None) -> go.Figure:
    """Draw the share of problems above each threshold; a level has a colour, a rival a dash.

    Args:
        levels: In this order.
        title: Above the figure.
        columns: Width in columns of a page; the screen's when None.

    Raises:
        UsageError: There is no problem to draw.
    """
    if not any(level.problems for level in levels):
        raise UsageError("no fast_p to draw: there is no problem that can be judged")
    figure = go.Figure()
    size = dress(figure, "p (times the rival's speed)", "problems solved (%)", title=title, columns=columns)
    for at, level in enumerate(levels):
        for number, (rival, shares) in enumerate(level.fast.items()):
            style = {"color": PALETTE[at % len(PALETTE)], "width": size.line, "dash": DASHES[number]}
            figure.add_trace(
                go.Scatter(
                    x=list(shares), y=[100 * share for share in shares.values()], mode="lines+markers",
                    name=escape(f"{level.name}, {_RIVALS.get(rival, rival)} ({level.problems})"), line=style,
                    marker={"symbol": SYMBOLS[at % len(SYMBOLS)], "size": size.marker},
                )
            )  # fmt: skip
    thresholds = sorted({p for level in levels for shares in level.fast.values() for p in shares})
    figure.update_xaxes(tickvals=thresholds, ticktext=[f"{p:g}" for p in thresholds])
    figure.update_yaxes(range=[0, 104])
    figure.update_layout(showlegend=True)
    fit_legend(figure, columns)
    return figure


def fast_p_table(levels: Sequence[FastP]) -> Table:
    """The same as a table: a row for each level and rival, shares in percent."""
    thresholds = sorted({p for level in levels for shares in level.fast.values() for p in shares})
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (level.name, _RIVALS.get(rival, rival), level.problems, level.refused, *(100 * shares[p] for p in thresholds))
        for level in levels
        for rival, shares in level.fast.items()
    )
    columns = ("level", "rival", "problems", "refused", *(f"fast_{p:g} (%)" for p in thresholds))
    return Table(columns, rows, "Refused problems cannot be judged and are not counted.")
