"""The command ``export``: a kept kernel as a package of its own, or as a project of Hugging Face's `kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autokernel.cli.arguments import RootOption
from autokernel.cli.console import say
from autokernel.cli.locating import ROOT, find_run
from autokernel.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command of this module to the application."""
    app.command()(export)


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name, or an archive.")],
    package: Annotated[str | None, typer.Option(metavar="NAME", help="Write an installable Python package.")] = None,
    hf: Annotated[
        str | None, typer.Option("--hf", metavar="NAME", help="Write a project of Hugging Face's kernels, built.")
    ] = None,
    torch_op: Annotated[
        bool,
        typer.Option(
            "--torch-op", help="Register a torch.library operator in it; alone: in a package named by the run."
        ),
    ] = False,
    experiment: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="An experiment that was kept; the best when not given.")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder; ./NAME when not given.")] = None,
    admit: Annotated[
        str, typer.Option(help="verified: the kernel runs on sizes that passed; range: also on sizes between them.")
    ] = "verified",
    root: RootOption = ROOT,
) -> None:
    """Write a kept kernel as a package that needs no AutoKernel.

    It holds the kernel, a guard that lets it run where it was verified, PyTorch for all other calls, and a README
    with the evidence. Nothing is published.
    """
    if package is not None and hf is not None:
        raise UsageError("--package and --hf are two kinds of project; write one after the other")
    if package is None and hf is None and not torch_op:
        raise UsageError("say what to write: --package NAME, --hf NAME, or --torch-op")
    folder = find_run(run, root, acts=False)

    from autokernel.export import export_hf, export_package

    if hf is not None:
        written = export_hf(folder, hf, output, experiment=experiment, torch_op=torch_op, admit=admit)
        say(f'the kernel is in {written}; load it with: kernels.get_local_kernel(Path("{written}"))')
    else:
        written = export_package(folder, package, output, experiment=experiment, torch_op=torch_op, admit=admit)
        say(f"the kernel is in {written}; install it with: pip install {written}")
