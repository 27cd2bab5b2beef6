"""Write a figure to a file: HTML by plotly alone, PNG, SVG and PDF by kaleido and a browser.

SVG and PDF are vectors.  At the size of a column a PNG has 300 dots to the inch.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import plotly.graph_objects as go

from autokernel.errors import BackendUnavailable, UsageError
from autokernel.plaintext import one_line
from autokernel.plots.style import size_of

__all__ = ["FORMATS", "find_browser", "save"]

FORMATS = (".html", ".png", ".svg", ".pdf")
_SCREEN_SCALE, _PAPER_SCALE = 2, 300 / 96


def find_browser() -> str | None:
    """The browser that kaleido would draw with: ``BROWSER_PATH``, or a Chrome or Chromium on the path."""
    named = os.environ.get("BROWSER_PATH")
    if named:
        return named if Path(named).is_file() else None
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((found for found in map(shutil.which, names) if found), None)


def save(figure: go.Figure, path: str | Path) -> Path:
    """Write the figure in the format that the path's suffix names.

    ``.html`` is one file that needs no network; ``.png``, ``.svg`` and ``.pdf`` are drawn by
    kaleido, which needs a Chrome or Chromium.

    Returns:
        The path.

    Raises:
        UsageError: Another suffix, or the folder does not exist.
        BackendUnavailable: kaleido or the browser is missing; HTML always works.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"cannot write a figure as {path.name!r}; end the name in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {str(path.parent)!r} of the figure does not exist; create it first")
    if suffix == ".html":
        figure.write_html(path, include_plotlyjs=True, full_html=True)
        return path
    browser = find_browser()
    if browser is None:
        raise BackendUnavailable(
            f"no Chrome or Chromium to draw {path.name!r} with; install one (Debian: apt-get install chromium), "
            "set BROWSER_PATH to its program, or write .html"
        )
    try:
        figure.write_image(path, scale=_scale(figure) if suffix == ".png" else 1)
    except Exception as error:  # kaleido and choreographer raise many kinds, none of them documented
        raise BackendUnavailable(
            f"drawing {path.name!r} with {browser} failed: {one_line(error)}; install kaleido and a working "
            "Chromium, or write .html"
        ) from error
    return path


def _scale(figure: go.Figure) -> float:
    return _SCREEN_SCALE if figure.layout.width is None or figure.layout.width >= size_of(None).width else _PAPER_SCALE
