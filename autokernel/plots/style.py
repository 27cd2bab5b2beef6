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

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.plaintext import clean

__all__ = [
    "BLACK", "BLUE", "DASHES", "GREEN", "GREY", "ORANGE", "PALETTE", "PATTERNS", "PURPLE", "SKY", "SYMBOLS", "Size",
    "VERMILION", "YELLOW", "dress", "escape", "lighter", "size_of",
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
    1: Size(width=3.5 * 96, height=2.4 * 96, font=8 * _POINT, small=7 * _POINT, marker=5, line=1.2, paper=True),
    2: Size(width=7.16 * 96, height=2.9 * 96, font=9 * _POINT, small=8 * _POINT, marker=6, line=1.4, paper=True),
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
    axis = {
        "showgrid": True, "gridcolor": "#E4E4E4", "linecolor": BLACK, "showline": True, "ticks": "outside",
        "tickfont": {"size": size.small}, "title": {"font": {"size": size.font}}, "zeroline": False, "automargin": True,
    }  # fmt: skip
    if size.paper:
        axis |= {"linewidth": 0.8, "gridwidth": 0.6, "ticklen": 3, "tickwidth": 0.8}
        legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left", "itemsizing": "trace"}
        margin = {"l": 8, "r": 6, "t": 22 if title else 4, "b": 8, "pad": 0}
        axis["title"]["standoff"] = 5
    else:
        legend = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"}
        margin = {"l": 95, "r": 25, "t": 60, "b": 110}
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.02, "xanchor": "left", "font": {"size": size.font if size.paper else 17}},
        font={"family": _PAPER_FONT if size.paper else _SCREEN_FONT, "size": size.font, "color": BLACK},
        legend={**legend, "font": {"size": size.small}},
        margin=margin,
        hoverlabel={"align": "left"},
        width=round(size.width),
        height=round(height or size.height),
    )
    figure.update_xaxes(title_text=x_title, **axis)
    figure.update_yaxes(title_text=y_title, **axis)
    return size


def escape(text: object) -> str:
    """Foreign text as plotly shows it literally: plotly reads a small subset of HTML in its texts."""
    return html.escape(clean(text), quote=False)


def lighter(colour: str, part: float = 0.55) -> str:
    """A colour mixed with so much white, 0 to 1.

    >>> lighter("#000000", 0.5)
    '#808080'
    """
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(channel + (255 - channel) * part):02x}" for channel in channels)
