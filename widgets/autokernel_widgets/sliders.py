"""A slider for each chosen target, with the speedup that is tried out."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from autokernel_widgets.bars import SHEET
from autokernel_widgets.plan_making import known_targets
from autokernel_widgets.report_source import ReportSource
from autokernel_widgets.what_if import Choice, limit_of

__all__ = ["Sliders"]


class Sliders(anywidget.AnyWidget):
    """One slider per chosen target, from 1 to where its floor allows; a move changes the choice while it goes on.

    Args:
        source: The profile.
        choice: What a person chose; written here by the sliders.
        in_loop: Runs a call in the thread of the event loop; some notebook kernels hear a browser in another one.

    Attributes:
        rows: Of each slider the target's name, its speedup, and where the slider ends.
    """

    _esm = Path(__file__).with_name("sliders.js")
    _css = SHEET

    rows: traitlets.List[Any] = traitlets.List().tag(sync=True)
    label = traitlets.Unicode("Speedups that are tried out").tag(sync=True)

    def __init__(self, source: ReportSource, choice: Choice, in_loop: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._source, self._choice = source, choice
        choice.observe(lambda change: self._show(), "speedups")
        self.on_msg(lambda widget, content, buffers: in_loop(lambda: self._heard(content)))

    def _show(self) -> None:
        report = self._source.report()
        chosen = known_targets(report, self._choice.speedups)
        self.rows = [[name, self._choice.speedups[name], limit_of(report.target(name))] for name in chosen]

    def _heard(self, content: Any) -> None:
        """A move; what is no speedup of a chosen target is passed over, as the view may be older than the choice."""
        name, value = (content.get("slide"), content.get("value")) if isinstance(content, dict) else (None, None)
        row = next((row for row in self.rows if row[0] == name), None)
        if row is not None and isinstance(value, (int, float)) and math.isfinite(value):
            self._choice.put({**self._choice.speedups, row[0]: min(max(1.0, float(value)), row[2])})
