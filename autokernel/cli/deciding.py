"""Commands to the process that drives a run: ``keep``, ``revert``, ``comment``, ``pause``, ``resume``, ``stop``.

A command is a file in the run folder.  The driving process takes it within a moment; when nobody
drives the run, it waits there for the next ``autokernel run``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autokernel.cli.arguments import JsonOption, RootOption
from autokernel.cli.console import emit_json, say
from autokernel.cli.locating import ROOT, find_run, number, split_run
from autokernel.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from autokernel.runfolder import RunFolder

__all__ = ["register"]

_PATIENCE_SECONDS = 3.0

RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help="A run's folder or name.", show_default=False)]
RunAndNumber = Annotated[list[str], typer.Argument(metavar="[RUN] N", help="A run, and the waiting experiment.")]
RunAndText = Annotated[list[str], typer.Argument(metavar="[RUN] TEXT", help="A run, and what the agent should know.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    for command in (keep, revert, comment, pause, resume, stop):
        app.command()(command)


def keep(words: RunAndNumber, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Keep the experiment that waits for a person."""
    _decide("keep", words, root, as_json)


def revert(words: RunAndNumber, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Revert the experiment that waits for a person."""
    _decide("revert", words, root, as_json)


def comment(words: RunAndText, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Say something to the agent; it stands in its next prompt."""
    run, remark = split_run(words, "TEXT")
    if not remark.strip():
        raise UsageError("the comment is empty; write what the agent should know")
    _send(_folder(run, root), "comment", as_json, text=remark)


def pause(run: RunArgument = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Pause a run after the current experiment."""
    _send(_folder(run, root), "pause", as_json)


def resume(run: RunArgument = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Let a paused run go on."""
    _send(_folder(run, root), "resume", as_json)


def stop(run: RunArgument = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """End the process that drives a run, after the current experiment."""
    folder = _folder(run, root)
    if folder.status.driver is None:
        raise UsageError(f"nobody drives {folder.path}, so there is nothing to stop")
    _send(folder, "stop", as_json)


def _folder(run: str | None, root: Path) -> RunFolder:
    from autokernel.runfolder import RunFolder

    return RunFolder(find_run(run, root, acts=True))


def _decide(kind: str, words: list[str], root: Path, as_json: bool) -> None:
    run, which = split_run(words, "N")
    folder = _folder(run, root)
    experiment = folder.experiment(number(which))
    pending = folder.pending
    if pending is None or pending.number != experiment.number:
        waits = "no experiment waits" if pending is None else f"experiment {pending.number} waits"
        state = experiment.decision or experiment.state.value
        raise UsageError(f"experiment {experiment.number} is not waiting for a decision ({state}); {waits}")
    if kind == "keep" and not experiment.passed:
        raise UsageError(f"experiment {experiment.number} failed verification ({experiment.reason}) and cannot be kept")
    _send(folder, kind, as_json, experiment=experiment.number)


def _send(folder: RunFolder, kind: str, as_json: bool, **data: Any) -> None:
    """Leave the command; wait a moment for a driving process to take it, and say what became of it."""
    command = folder.send(kind, by="person", **data)
    driver = folder.status.driver
    deadline = time.monotonic() + (_PATIENCE_SECONDS if driver is not None else 0.0)
    taken = False
    while not taken and time.monotonic() < deadline:
        time.sleep(0.1)
        taken = all(waiting.id != command.id for waiting in folder.waiting_commands)
    if as_json:
        emit_json({"run": str(folder.path), "command": kind, **data, "id": command.id, "taken": taken})
    elif taken:
        say(f"{kind}: taken by the process that drives {folder.path.name}")
    elif driver is not None:
        say(f"{kind}: left for process {driver.get('pid')}, which is busy with an experiment")
    else:
        say(f"{kind}: nobody drives {folder.path.name}; it takes effect with the next: autokernel run {folder.path}")
