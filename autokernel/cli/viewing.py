"""Commands that read a run and leave it as it is: ``status``, ``log``, ``show``, ``diff``, ``archive``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autokernel.cli.arguments import JsonOption, RootOption
from autokernel.cli.console import console, emit_json, say, text
from autokernel.cli.locating import ROOT, number, open_experiment, open_folder
from autokernel.plaintext import clean, one_line

if TYPE_CHECKING:
    from autokernel.experiment import Experiment

__all__ = ["register"]

RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help="A run's folder or name.", show_default=False)]
RunAndNumber = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN] [N]", help="A run, and an experiment's number; the latest without.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    for command in (status, log, show, diff, archive):
        app.command()(command)


def status(run: RunArgument = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Show where a run stands."""
    from autokernel.cli.tables import show_status, status_data

    state = open_folder(run, root).status
    if as_json:
        emit_json(status_data(state))
    else:
        show_status(state)


def log(run: RunArgument = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """List the experiments of a run."""
    from autokernel.cli.tables import show_log

    experiments = open_folder(run, root).experiments
    if as_json:
        emit_json([experiment.to_dict() for experiment in experiments])
    else:
        show_log(experiments)


def show(words: RunAndNumber = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Show one experiment: decision, verdict, measurement."""
    folder, experiment = open_experiment(words or [], root)
    record = folder.record(experiment.number)
    if as_json:
        emit_json({**experiment.to_dict(), "record": record})
        return
    _show_experiment(experiment, record)


def _show_experiment(experiment: Experiment, record: dict[str, Any]) -> None:
    from autokernel.cli.rendering import show_measurement, show_verdict
    from autokernel.cli.tables import outcome
    from autokernel.measurement import Measurement
    from autokernel.verdict import Verdict

    say(f"experiment {experiment.number}: {outcome(experiment)}")
    say(f"hypothesis: {one_line(experiment.hypothesis, limit=2000)}")
    say(f"agent {experiment.agent}, commit {experiment.commit}, {experiment.seconds:.1f} s, {experiment.timestamp}")
    if experiment.worker:
        say(f"judged by {one_line(experiment.worker)}")
    if experiment.reason:
        say(f"decided by {experiment.decided_by or 'nobody yet'}: {experiment.reason}")
    if record.get("verdict"):
        say()
        show_verdict(Verdict.from_dict(record["verdict"]))
    for name, title in (("measurement", "Measurement"), ("confirmation", "Confirmation, on fresh inputs")):
        if record.get(name):
            say(f"\n{title}:")
            show_measurement(Measurement.from_dict(record[name]))


def diff(
    words: RunAndNumber = None,
    against: Annotated[
        str, typer.Option(help="parent (the best when it was proposed), starter, or an experiment's number.")
    ] = "parent",
    root: RootOption = ROOT,
) -> None:
    """Show what an experiment changed."""
    folder, experiment = open_experiment(words or [], root)
    change = folder.diff(experiment.number, against=_rival(against))
    styles = {"+": "green", "-": "red", "@": "cyan"}
    output = console()
    if not output.is_terminal:
        print(clean(change, limit=10_000_000), end="" if change.endswith("\n") else "\n")
        return
    for line in change.splitlines():
        output.print(text(line, styles.get(line[:1], "")), soft_wrap=True)


def _rival(text: str) -> str | int:
    return text if text in ("parent", "starter") else number(text)


def archive(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    root: RootOption = ROOT,
) -> None:
    """Write a run as plain files, to be published: rows, records, each kernel.

    `log`, `show`, `diff`, `plot` and the agent `replay:FOLDER` read it.
    """
    from autokernel.archive import write_archive

    written = write_archive(open_folder(run, root), folder)
    kernels = len(list((written / "kernels").iterdir()))
    say(f"{kernels} kernels and what was found out about them are in {written}")
