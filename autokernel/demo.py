"""The run that ``make demo`` makes: rmsnorm by the offline search agent, on whatever device is there.

C++ on a machine without a GPU, Triton on one with a GPU.  The command line drives it.
"""

from __future__ import annotations

import os
from pathlib import Path

from autokernel import plots
from autokernel.errors import BackendUnavailable
from autokernel.plaintext import one_line
from autokernel.policy import PolicySettings
from autokernel.runfolder import RunFolder
from autokernel.session import Session

__all__ = ["OPERATION", "busy_note", "create_demo", "draw_progress"]

OPERATION = "rmsnorm"


def create_demo(root: Path, *, device: str = "auto") -> Path:
    """Create the demo's run and return its folder; the backend follows from the device.

    The run goes on when it nears the roofline, because the demo shows the loop and not only its result.
    """
    policy = PolicySettings(plateau=None, near_peak=None)
    session = Session.create(OPERATION, device=device, root=root, agent="search", policy=policy)
    try:
        return session.path
    finally:
        session.close()


def busy_note() -> str:
    """Say that other programs keep the cores busy, so that times will scatter; "" if they do not."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if load < max(1.0, cores / 2):
        return ""
    return (
        f"the machine was busy at the start (load {load:.1f} on {cores} cores): measurements take longer and scatter, "
        "so fewer gains are certain enough to be kept, and speedups may be too high or too low; "
        "repeat it when it is quiet"
    )


def draw_progress(run: Path) -> Path:
    """Draw the run's progress into its folder: as PNG where a browser is there to draw with, else as HTML."""
    folder = RunFolder(run)
    target = folder.target
    title = one_line(f"{target.operation}, {target.backend}, {target.dtype} on {target.device}")
    figure = plots.progress(plots.experiment_points(folder.experiments), title=title)
    try:
        return plots.save(figure, folder.path / "progress.png")
    except BackendUnavailable:
        return plots.save(figure, folder.path / "progress.html")
