"""Drive a run from the terminal, and say what happens while it happens.

What is shown comes from the run's event file, the same that a notebook or a second terminal reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from autokernel.cli.console import complain, describe, say
from autokernel.cli.tables import experiment_line
from autokernel.plaintext import one_line
from autokernel.runfolder import RunFolder

if TYPE_CHECKING:
    from rich.progress import Progress

    from autokernel.experiment import Experiment, Summary
    from autokernel.session import Session
    from autokernel.workers import DaskEvaluator

__all__ = ["announce", "drive", "finish", "judge_on", "one_step", "one_submission"]

_POLL_SECONDS = 0.2
_Result = TypeVar("_Result")


def announce(path: Path, experiments: int, note: str = "") -> None:
    """Say what begins; the first experiment's line may be minutes away, also where no bar moves."""
    target = RunFolder(path).target
    say(f"{target.operation}, {target.backend}, {target.dtype} on {target.device}: {experiments} experiments in {path}")
    if note:
        say(f"note: {note}")
    sys.stdout.flush()


async def drive(
    path: Path,
    *,
    experiments: int,
    minutes: float | None,
    approval: str | None,
    quiet: bool,
    workers: str | None = None,
) -> Summary:
    """Make experiments in the run at ``path``, showing each one; ``quiet`` keeps stdout free.

    Raises:
        RunBusy: Another process drives the run.
        BackendUnavailable: ``workers`` are wanted and Dask is not installed.
    """
    return await _with(
        path,
        lambda session: session.run(experiments=experiments, minutes=minutes),
        total=experiments,
        quiet=quiet,
        approval=approval,
        workers=workers,
    )


async def one_step(path: Path, *, quiet: bool) -> Experiment:
    """Make one experiment in the run at ``path``."""
    return await _with(path, lambda session: session.step(), total=1, quiet=quiet, lines=False)


async def one_submission(path: Path, source: str, *, hypothesis: str, agent: str, quiet: bool) -> Experiment:
    """Judge ``source`` as an experiment of the run at ``path``."""
    return await _with(
        path,
        lambda session: session.submit(source, hypothesis=hypothesis, agent=agent),
        total=1,
        quiet=quiet,
        lines=False,
    )


async def _with(
    path: Path,
    work: Callable[[Session], Awaitable[_Result]],
    *,
    total: int,
    quiet: bool,
    lines: bool = True,
    approval: str | None = None,
    workers: str | None = None,
) -> _Result:
    from autokernel.session import Session

    with judge_on(workers, RunFolder(path).target.device) as judge:
        session = Session.open(path, approval=approval, evaluator=judge)
        try:
            with _bar(total) as bar:
                watcher = asyncio.create_task(_Watcher(path, bar, lines=lines and not quiet).follow())
                try:
                    return await work(session)
                finally:
                    watcher.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await watcher
        finally:
            session.close()


@contextlib.contextmanager
def judge_on(workers: str | None, device: str) -> Iterator[DaskEvaluator | None]:
    """The judge that ``--workers`` asks for, for runs on ``device``; None for each run's own."""
    if workers is None:
        yield None
        return
    from autokernel.workers import DaskEvaluator, open_workers

    with open_workers(workers, device=device) as client:
        yield DaskEvaluator(client)


def finish(path: Path, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``work`` to its end; Ctrl-C leaves a run that can be continued, and says how."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        complain(f"stopped; nothing is lost, continue with: autokernel run {path}")
        raise typer.Exit(130) from None


class _Watcher:
    """Turns the events of a run into lines on stdout and a moving bar on stderr."""

    def __init__(self, path: Path, bar: tuple[Progress, Any] | None, *, lines: bool) -> None:
        self._folder = RunFolder(path)
        self._bar = bar
        self._lines = lines
        self._seq = max((event["seq"] for event in self._folder.events()), default=0)

    async def follow(self) -> None:
        """Show events until cancelled, and those of the last moment then."""
        try:
            while True:
                self._show_news()
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._show_news()

    def _show_news(self) -> None:
        for event in self._folder.events(after=self._seq):
            self._seq = event["seq"]
            self._show(event)

    def _show(self, event: dict[str, Any]) -> None:
        kind = event.get("kind")
        if kind == "decided":
            self._move(advance=int(event.get("decision") != "baseline"))
            self._line(experiment_line(self._folder.experiment(event["experiment"])))
        elif kind == "waiting":
            number = event["experiment"]
            self._line(experiment_line(self._folder.experiment(number)))
            name = self._folder.path.name
            self._line(f"experiment {number} waits for you: autokernel keep {name} {number} (or revert, comment)")
        elif kind in ("note", "refused"):
            self._line(f"note: {one_line(event.get('text') or event.get('refused'))}")
        elif kind == "recovered":
            for note in event.get("notes", ()):
                self._line(f"note: {one_line(note)}")
        elif kind in ("progress", "judging"):
            self._move(description=f"experiment {event.get('experiment', '')} {describe(event)}")

    def _line(self, message: str) -> None:
        if not self._lines:
            return
        say(message)
        sys.stdout.flush()

    def _move(self, description: str | None = None, advance: int = 0) -> None:
        if self._bar is None:
            return
        progress, task = self._bar
        shown = None if description is None else one_line(description, limit=60)
        progress.update(task, advance=advance, description=shown)


@contextlib.contextmanager
def _bar(total: int) -> Iterator[tuple[Progress, Any] | None]:
    """A progress bar over experiments on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from autokernel.cli.console import console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    both = sys.stdout.isatty()  # then lines on stdout must pass through rich, or they would tear the bar
    with Progress(*columns, console=console(stderr=True), transient=True, redirect_stdout=both) as progress:
        yield progress, progress.add_task("starting", total=total)
