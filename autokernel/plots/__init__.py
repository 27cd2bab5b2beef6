"""Figures of runs, for the screen and for papers, and the tables behind them.

Each function takes plain data and returns a plotly figure or a `Table`; only `series` and `saving`
read and write files, and nothing here needs torch.
"""

from __future__ import annotations

from autokernel.plots.latencies import latencies
from autokernel.plots.progress import OUTCOMES, ProgressPoint, experiment_points, progress, progress_points
from autokernel.plots.roofline import RooflinePoint, roofline, roofline_point
from autokernel.plots.saving import FORMATS, find_browser, save

__all__ = [
    "FORMATS",
    "OUTCOMES",
    "ProgressPoint",
    "RooflinePoint",
    "experiment_points",
    "find_browser",
    "latencies",
    "progress",
    "progress_points",
    "roofline",
    "roofline_point",
    "save",
]
