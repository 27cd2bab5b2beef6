"""Commands that open something bigger: ``lab`` and ``demo``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from autokernel.cli.arguments import DeviceOption, RootOption
from autokernel.cli.console import say
from autokernel.cli.locating import ROOT
from autokernel.errors import BackendUnavailable, UsageError

__all__ = ["notebook_folder", "register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    app.command()(lab)
    app.command()(demo)


def notebook_folder() -> Path | None:
    """The folder of the notebooks: here, or in the checkout that this package runs from; None if neither has it."""
    for base in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (base / "notebooks" / "01_quickstart.ipynb").is_file():
            return base / "notebooks"
    return None


def lab(
    folder: Annotated[Path | None, typer.Argument(help="Folder to open; the notebooks when not given.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="First port to try.")] = 8888,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Open JupyterLab on the notebooks."""
    if folder is not None and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is no folder; give the one that holds your notebooks")
    where = folder or notebook_folder() or Path.cwd()
    beside = Path(sys.executable).with_name("jupyter-lab")
    program = str(beside) if beside.is_file() else shutil.which("jupyter-lab")
    if program is None:
        raise BackendUnavailable("JupyterLab is not installed; pip install jupyterlab")
    command = [program, f"--ServerApp.root_dir={where.resolve()}", f"--ServerApp.port={port}"]
    if not browser:
        command.append("--no-browser")
    if os.geteuid() == 0:
        command.append("--allow-root")  # JupyterLab refuses root otherwise, and containers often are root
    say(f"JupyterLab opens on {where}; end it with Ctrl-C")
    raise typer.Exit(subprocess.call(command))


def demo(
    experiments: Annotated[int, typer.Option(min=1, help="How many experiments to make.")] = 16,
    device: DeviceOption = "auto",
    root: RootOption = ROOT,
) -> None:
    """Optimise rmsnorm on this machine, from start to end."""
    from autokernel.cli.driving import announce, drive, finish
    from autokernel.cli.tables import show_summary
    from autokernel.demo import busy_note, create_demo, draw_progress

    busy = busy_note()
    run = create_demo(root, device=device)
    announce(run, experiments, note=busy)
    summary = finish(run, drive(run, experiments=experiments, minutes=None, approval=None, quiet=False))
    show_summary(summary, figure=draw_progress(run), note=busy)
    if summary.best is not None and summary.best.number > 0:
        say(f"\nThe best kernel is {run / 'kernel.py'}; what it changed since the start:")
        say(f"  autokernel diff {run} {summary.best.number} --against starter")
    say(f"To go on: autokernel run {run}")
