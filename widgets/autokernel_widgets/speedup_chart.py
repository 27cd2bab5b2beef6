"""Speedup over PyTorch of each experiment of a run, with the kernel on the branch as a step line."""

from __future__ import annotations

import copy
from pathlib import Path

import plotly.graph_objects as go

from autokernel import plots
from autokernel.plaintext import one_line
from autokernel.runfolder import RunFolder
from autokernel_widgets.following import folder_of, follow

__all__ = ["SpeedupChart"]


class SpeedupChart(go.FigureWidget):
    """The progress figure of `autokernel.plots`, as a widget that can follow a run.

    Args:
        run: A run folder, or its path.

    Raises:
        UsageError: The folder is no run.
    """

    def __init__(self, run: RunFolder | str | Path) -> None:
        folder = folder_of(run)
        points = _points(folder)
        super().__init__(_figure(folder, points))
        self._folder = folder
        self._points = points

    def refresh(self) -> bool:
        """Draw what the run folder holds now; True if that differed from what was shown."""
        points = _points(self._folder)
        if points == self._points:
            return False
        self._points = points
        figure = _figure(self._folder, points)
        with self.batch_update():
            self.data = ()
            self.add_traces(figure.data)
            self.layout = figure.layout
        with self.hold_sync():
            # A browser that is reloaded draws these two, which plotly sets only at construction.
            self._widget_data = copy.deepcopy(self._data)
            self._widget_layout = copy.deepcopy(self._layout_obj._props)
        return True

    async def follow(self, *, interval_seconds: float = 0.5, seconds: float | None = None) -> None:
        """Keep the figure up to date: for so many seconds, or until the task is cancelled."""
        await follow(self.refresh, interval_seconds=interval_seconds, seconds=seconds)


def _points(folder: RunFolder) -> list[plots.ProgressPoint]:
    return plots.experiment_points(folder.experiments)


def _figure(folder: RunFolder, points: list[plots.ProgressPoint]) -> go.Figure:
    target = folder.target
    title = one_line(f"{target.operation}, {target.backend}, {target.dtype} on {target.device}")
    return plots.progress(points, title=title)
