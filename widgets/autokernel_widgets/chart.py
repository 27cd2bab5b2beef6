"""A plotly figure in a widget: drawn by one plotly.js for the whole page, in the colours of the theme.

plotly's own FigureWidget sends 5 MB of JavaScript for every figure and, after a reload of the page, shows
the figure as it was constructed.  Here the browser asks for plotly.js once, and the figure is plain
data that Python replaces.  Before plotly.js is there, and where widgets are unknown, a sketch is shown.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from autokernel.runfolder import RunFolder
from autokernel_widgets.following import Follower, RunSource, Unreadable
from autokernel_widgets.markup import node, to_html
from autokernel_widgets.panel import STYLE, message, script, static_html, with_html

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["Chart", "axis", "base_layout"]


class Chart(Follower, anywidget.AnyWidget):
    """Base of the charts.

    Args:
        run: A run folder, its path, or the session that drives it in this process.  If it cannot be
            read, the widget says why.
        selected: The experiment that is marked; -1 for none.
        live: Follow the run by itself.

    Attributes:
        figure: ``data`` and ``layout`` as plotly takes them; ``$ink``, ``$grid`` and ``$paper`` stand
            for the theme's colours.
        selected: The experiment that a click chose; link it to that of other widgets with `traitlets.link`.
        problem: Why nothing can be drawn, or "".
    """

    _esm = script("chart.js")
    _css = STYLE

    figure = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    beat = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)

    def __init__(self, run: RunFolder | Session | str | Path, *, selected: int = -1, live: bool = True) -> None:
        super().__init__(selected=selected)
        self._source = RunSource.of(run)
        self.refresh()
        self.on_msg(lambda widget, content, buffers: self._in_loop(lambda: self._heard(content)))
        self._begin(live)

    def refresh(self) -> bool:
        """Draw what the run folder holds now; True if that differed from what was shown."""
        try:
            figure, problem = self._source.guard(self._draw), ""
        except Unreadable as error:
            figure, problem = {}, str(error)
        if not problem and plotly_file() is None:
            problem = (
                "plotly is not installed, so the chart cannot be drawn: pip install plotly, and restart the kernel"
            )
        if (figure, problem) == (self.figure, self.problem):
            return False
        with self.hold_sync():
            self.figure, self.problem = figure, problem
        return True

    def _draw(self) -> dict[str, Any]:
        """The figure.

        Raises:
            Unreadable: The run cannot be read.
        """
        raise NotImplementedError

    def _sketch(self) -> list[Any]:
        """A tree that stands in for the figure where widgets are unknown."""
        raise NotImplementedError

    def _heard(self, content: Any) -> None:
        wants = content.get("wants") if isinstance(content, dict) else None
        if wants in ("sketch", "plotly"):
            with contextlib.suppress(Unreadable):  # then the figure says so, too
                self.send({"gives": "sketch", "tree": self._source.guard(self._sketch)})
        if wants == "plotly":
            packed = plotly_js()
            self.send({"gives": "plotly"}, buffers=[] if packed is None else [packed])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        try:
            return static_html(node("div", self._source.guard(self._sketch), class_="ak"))
        except Unreadable as error:
            return to_html(message(str(error)))


@functools.cache
def plotly_file() -> Path | None:
    """Where plotly.js lies, or None where plotly is not installed."""
    found = importlib.util.find_spec("plotly")
    places = found.submodule_search_locations if found is not None else None
    file = Path(next(iter(places))) / "package_data" / "plotly.min.js" if places else None
    return file if file is not None and file.is_file() else None


@functools.cache
def plotly_js() -> bytes | None:
    """plotly.js, compressed; None where plotly is not installed."""
    file = plotly_file()
    return None if file is None else gzip.compress(file.read_bytes(), compresslevel=1)


def base_layout(x_title: str, y_title: str, *, height: int) -> dict[str, Any]:
    """What all charts have in common: no background of their own, and the theme's ink."""
    return {
        "font": {"color": "$ink", "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 78, "r": 20, "t": 12, "b": 46},
        "height": height,
        "autosize": True,
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "$paper", "font": {"color": "$ink"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis(x_title),
        "yaxis": axis(y_title),
        "uirevision": "as the person zoomed it",
    }


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with a faint grid."""
    return {
        "title": {"text": title}, "gridcolor": "$grid", "linecolor": "$ink", "zeroline": False, "showline": True,
        "ticks": "outside", **options,
    }  # fmt: skip
