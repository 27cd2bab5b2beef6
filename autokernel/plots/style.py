"""What all figures have in common: colours, shapes, patterns, sizes, and how foreign text is shown.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; whatever has a colour of its
own has a shape, a dash or a pattern of its own too, so that a grey print still reads.

Sizes are for the screen, or for a column or the whole width of a page of two columns: there a figure
has no background, a title only if asked for, and text of 7 to 9 points at its printed size.
Units: CSS pixels, 96 to the inch; points, 72 to the inch.

Source of the colours: M. Okabe and K. Ito, Color Universal Design, 2008.  Of the widths: the IEEE's
templates, 3.5 and 7.16 inches.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.plaintext import clean

__all__ = [
    "BLACK", "BLUE", "DASHES", "GREEN", "GREY", "ORANGE", "PALETTE", "PATTERNS", "PURPLE", "SKY", "SYMBOLS", "Size",
    "VERMILION", "YELLOW", "dress", "escape", "fit_legend", "hatch", "lighter", "nice_step",
    "size_of", "text_width",
]  # fmt: skip

BLACK, GREY = "#000000", "#767676"
GREEN, BLUE, VERMILION, ORANGE = "#009E73", "#0072B2", "#D55E00", "#E69F00"
PURPLE, SKY, YELLOW = "#CC79A7", "#56B4E9", "#F0E442"

PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
PATTERNS = ("", "/", ".", "x", "-", "\\", "+")

_POINT = 96 / 72
_SCREEN_FONT = "DejaVu Sans, Arial, sans-serif"
_PAPER_FONT = "Arial, Helvetica, Liberation Sans, DejaVu Sans Condensed, DejaVu Sans, sans-serif"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How large a figure and what is in it are drawn, in CSS pixels.

    Attributes:
        width: Of the figure.
        height: Of the figure, where its content does not decide.
        font: Text of titles and axis titles.
        small: Text of ticks, legend and notes.
        marker: Diameter of a marker.
        line: Width of a line that carries data.
        paper: It will be printed.
    """

    width: float
    height: float
    font: float
    small: float
    marker: float
    line: float
    paper: bool


_SIZES = {
    None: Size(width=900, height=520, font=13, small=13, marker=10, line=2, paper=False),
    1: Size(width=3.5 * 96, height=2.2 * 96, font=8 * _POINT, small=7 * _POINT, marker=5, line=1.2, paper=True),
    2: Size(width=7.16 * 96, height=2.6 * 96, font=9 * _POINT, small=8 * _POINT, marker=6, line=1.4, paper=True),
}


def size_of(columns: int | None) -> Size:
    """The size for the screen (None), one column of a page (1), or its whole width (2).

    Raises:
        UsageError: Another number of columns.
    """
    if columns not in _SIZES:
        raise UsageError(f"a figure cannot be {columns!r} columns wide; use 1 (3.5 in), 2 (7.16 in), or None (screen)")
    return _SIZES[columns]


def dress(
    figure: go.Figure, x_title: str, y_title: str, *, title: str = "", columns: int | None = None, height: float = 0
) -> Size:
    """Give a figure the common look, and return its size.

    Args:
        figure: Changed in place.
        x_title: Of the x axis, with its unit.
        y_title: Of the y axis, with its unit.
        title: Left out on paper when empty: there the caption says it.
        columns: As for `size_of`.
        height: In CSS pixels; the size's own when 0.
    """
    size = size_of(columns)
    axis: dict[str, Any] = {
        "showgrid": True, "gridcolor": "#E4E4E4", "linecolor": BLACK, "showline": True, "ticks": "outside",
        "tickfont": {"size": size.small}, "title": {"font": {"size": size.font}}, "zeroline": False, "automargin": True,
    }  # fmt: skip
    if size.paper:
        axis |= {"linewidth": 0.8, "gridwidth": 0.6, "ticklen": 3, "tickwidth": 0.8}
        legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"}
        margin = {"l": 8, "r": 6, "t": 22 if title else 4, "b": 8, "pad": 0}
        axis["title"] = {"font": {"size": size.font}, "standoff": 5}
    else:
        below = 70 / ((height or size.height) - 170)  # of the plot's height: 70 pixels are for the axis and its title
        legend = {"orientation": "h", "x": 0, "y": -below, "yanchor": "top"}
        margin = {"l": 95, "r": 25, "t": 60, "b": 110}
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.02, "xanchor": "left", "font": {"size": size.font if size.paper else 17}},
        font={"family": _PAPER_FONT if size.paper else _SCREEN_FONT, "size": size.font, "color": BLACK},
        legend={**legend, "font": {"size": size.small}, "tracegroupgap": 0},
        margin=margin,
        hoverlabel={"align": "left"},
        width=round(size.width),
        height=round(height or size.height),
    )
    figure.update_xaxes(title_text=x_title, **axis)
    figure.update_yaxes(title_text=y_title, **axis)
    return size


def fit_legend(figure: go.Figure, columns: int | None, *, left: float = 24) -> None:
    """Give the legend of a figure for print room of its own above the plot, which keeps its height.

    Call it when all traces are there; on the screen the legend stands below the plot, and nothing is done.

    Args:
        figure: Changed in place.
        columns: As for `size_of`.
        left: What labels take on the left of the plot, in pixels: plotly fits a legend into the plot's width.
    """
    size = size_of(columns)
    shown = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    if not size.paper or not shown or figure.layout.showlegend is False:
        return
    widths = [44 + text_width([trace.name], size.small) for trace in shown]
    if not any(trace.legendgroup for trace in shown):
        widths = [max(widths)] * len(widths)  # plotly gives items the same width, unless they form groups
    rows, used = 1, 0.0
    for width in widths:
        rows, used = (rows, used + width) if used + width <= size.width - left - 22 or not used else (rows + 1, width)
    room = rows * (1.3 * size.small + 8) + 2
    top = figure.layout.margin.t
    title = 20 if figure.layout.title.text else 0
    height = figure.layout.height + room
    figure.update_layout(
        height=round(height), margin={"t": top + room},
        legend={
            "xref": "container", "yref": "container", "x": 0, "y": 1 - title / height,
            "yanchor": "top", "maxheight": room + 4,
        },
    )  # fmt: skip


def text_width(texts: Sequence[str], font: float) -> float:
    """About how wide the widest line of the texts is, in pixels, for a sans-serif font of that size."""
    lines = [line for text in texts for line in html.unescape(text).split("<br>")]
    return max((sum(_width(char) for char in line) * font for line in lines), default=0.0)


def _width(char: str) -> float:
    return 0.3 if char in " .,:;|!'()[]iljtfr/" else 0.78 if char in "mwMW@%→×" else 0.64 if char.isupper() else 0.54


def nice_step(span: float, most: int = 5) -> float:
    """A round distance of ticks, so that at most so many fit into the span.

    >>> nice_step(5.0), nice_step(0.8)
    (1.0, 0.2)
    """
    least = span / most
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def escape(text: object) -> str:
    """Foreign text as plotly shows it literally: plotly reads a small subset of HTML in its texts."""
    return html.escape(clean(text), quote=False)


def hatch(shape: str, colour: str) -> dict[str, object]:
    """The pattern of a bar: black lines on its colour, sparse enough to read a number on; "" is plain."""
    return {
        "shape": shape,
        "fgcolor": BLACK,
        "bgcolor": colour,
        "fillmode": "replace",
        "size": 6,
        "solidity": 0.15 if shape != "." else 0.1,
    }


def lighter(colour: str, part: float = 0.55) -> str:
    """A colour mixed with so much white, 0 to 1.

    >>> lighter("#000000", 0.5)
    '#808080'
    """
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(channel + (255 - channel) * part):02x}" for channel in channels)
