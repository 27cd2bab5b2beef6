"""Figures of runs, for the screen and for papers, and the tables behind them.

Each figure comes from a function of plain data that returns a plotly figure, in one of three sizes
(``columns=None``, 1 or 2), and each has a function that returns the `Table` behind it.  Only `load_series`,
`campaign_parts`, `save` and `Table.save` read or write files.  Nothing here needs torch.
"""

from __future__ import annotations

from autokernel.plots.attribution import BY, Contribution, Step, ablation_table, contributions, steps
from autokernel.plots.helped import ablation
from autokernel.plots.points import OUTCOMES, ProgressPoint, experiment_points, progress_points
from autokernel.plots.rooflines import RooflinePoint, roofline, roofline_point, roofline_table, series_points
from autokernel.plots.samples import latencies
from autokernel.plots.saving import FORMATS, find_browser, save
from autokernel.plots.series import Series, label_uniquely, load_series, run_series
from autokernel.plots.shares import (
    Part,
    amdahl_change,
    amdahl_table,
    campaign_parts,
    model_speedup,
    profile_parts,
)
from autokernel.plots.speedups import speedup, speedup_table
from autokernel.plots.style import Size, size_of
from autokernel.plots.table import TABLE_FORMATS, Table
from autokernel.plots.targets import amdahl, profile_table
from autokernel.plots.trajectory import frontiers, progress, progress_table

__all__ = [
    "BY",
    "FORMATS",
    "OUTCOMES",
    "TABLE_FORMATS",
    "Contribution",
    "Part",
    "ProgressPoint",
    "RooflinePoint",
    "Series",
    "Size",
    "Step",
    "Table",
    "ablation",
    "ablation_table",
    "amdahl",
    "amdahl_change",
    "amdahl_table",
    "campaign_parts",
    "contributions",
    "experiment_points",
    "find_browser",
    "frontiers",
    "label_uniquely",
    "latencies",
    "load_series",
    "model_speedup",
    "profile_parts",
    "profile_table",
    "progress",
    "progress_points",
    "progress_table",
    "roofline",
    "roofline_point",
    "roofline_table",
    "run_series",
    "save",
    "series_points",
    "size_of",
    "speedup",
    "speedup_table",
    "steps",
]
