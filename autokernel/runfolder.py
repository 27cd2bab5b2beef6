"""A run as those see it who only watch: widgets, ``status``, ``log``, ``diff``, a second notebook.

Everything comes from the folder's files, so it works while another process drives the run, after
it has ended, and on a copy.  Nothing is written but commands.  Imports neither torch nor GitPython
(the latter only when a source or a diff is asked for).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel import files
from autokernel.archive import ArchivedHistory
from autokernel.errors import RunDamaged, UsageError
from autokernel.events import Command, Commands, EventReader
from autokernel.experiment import Experiment, RunStatus, State, tally
from autokernel.journal import JournalReader, JournalState, Records
from autokernel.measurement import Measurement
from autokernel.target import Target
from autokernel.verdict import Verdict

if TYPE_CHECKING:
    from autokernel.history import History

__all__ = ["Paths", "RunFolder"]

_TIMES = ("measurement", "confirmation")


@dataclasses.dataclass(frozen=True)
class Paths:
    """Where things lie in a run folder."""

    root: Path

    @property
    def inner(self) -> Path:
        return self.root / ".autokernel"

    @property
    def kernel(self) -> Path:
        return self.root / "kernel.py"

    @property
    def results(self) -> Path:
        return self.root / "results.tsv"

    @property
    def journal(self) -> Path:
        return self.inner / "journal.jsonl"

    @property
    def events(self) -> Path:
        return self.inner / "events.jsonl"

    @property
    def records(self) -> Path:
        return self.inner / "experiments"

    @property
    def commands(self) -> Path:
        return self.inner / "commands"

    @property
    def lock(self) -> Path:
        return self.inner / "lock"

    @property
    def aside(self) -> Path:
        return self.inner / "aside"

    @property
    def log(self) -> Path:
        return self.inner / "driver.log"


class RunFolder:
    """The view of one run folder.

    Args:
        path: The folder.

    Raises:
        UsageError: The folder is no run.
        RunDamaged: Its target.toml cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self.paths = Paths(self.path)
        self.target = Target.load(self.path)
        self._journal = JournalReader(self.paths.journal)
        self._events = EventReader(self.paths.events)
        self._records = Records(self.paths.records)
        self._commands = Commands(self.paths.commands)
        self._opened_history: History | None = None

    @property
    def experiments(self) -> list[Experiment]:
        """All experiments in order, those included that are being judged or wait."""
        return list(self._state().experiments.values())

    @property
    def best(self) -> Experiment | None:
        """The experiment whose kernel is on the branch, or None before the baseline is judged."""
        return self._state().best

    @property
    def pending(self) -> Experiment | None:
        """The experiment that waits for a person's decision, or None."""
        return next((one for one in self._state().unfinished if one.state is State.WAITING), None)

    @property
    def status(self) -> RunStatus:
        """Where the run stands."""
        state, driver, target = self._state(), files.driver_of(self.paths.lock), self.target
        decided = [one for one in state.experiments.values() if one.state is State.DECIDED]
        current = state.unfinished[-1] if state.unfinished else None
        if current is not None and current.state is State.WAITING:
            word = "waiting"
        elif state.paused:
            word = "paused"
        else:
            word = "running" if driver is not None else "idle"
        return RunStatus(
            path=self.path,
            operation=target.operation,
            backend=target.backend,
            dtype=target.dtype,
            device=target.device,
            branch=target.branch,
            agent=target.agent,
            approval=target.approval,
            state=word,
            driver=driver,
            tally=tally(decided),
            best=state.best,
            current=current,
            seconds_per_experiment=sum(one.seconds for one in decided) / len(decided) if decided else None,
            notes=tuple(state.notes),
        )

    def experiment(self, number: int) -> Experiment:
        """One experiment.

        Raises:
            UsageError: There is none of that number.
        """
        experiments = self._state().experiments
        if number not in experiments:
            known = f"0 to {max(experiments)}" if experiments else "none yet"
            raise UsageError(f"{self.path.name} has no experiment {number!r} (it has: {known})")
        return experiments[number]

    def record(self, number: int) -> dict[str, Any]:
        """The full record of an experiment: stages, cases, samples, the agent's exchange.

        Raises:
            UsageError: There is no such experiment.
        """
        self.experiment(number)
        return self._records.read(number)

    def judgement(self, number: int) -> tuple[Verdict | None, Measurement | None, Measurement | None]:
        """The verdict, the measurement and the confirming measurement of an experiment.

        Raises:
            UsageError: There is no such experiment.
            RunDamaged: Its record cannot be read.
        """
        record = self.record(number)
        try:
            verdict = Verdict.from_dict(record["verdict"]) if record.get("verdict") else None
            times = [Measurement.from_dict(record[name]) if record.get(name) else None for name in _TIMES]
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(f"the record of experiment {number} in {self.path} cannot be read: {error}") from None
        return verdict, times[0], times[1]

    def source(self, number: int) -> str:
        """The kernel of an experiment.

        Raises:
            UsageError: There is no such experiment.
            RunDamaged: Its commit is gone.
        """
        return self._history().source(self.experiment(number).commit)

    def diff(self, number: int, against: str | int = "parent") -> str:
        """The unified diff of an experiment's kernel.

        Args:
            number: The experiment.
            against: ``parent`` (the best kernel when it was proposed), ``starter``, or a number.

        Raises:
            UsageError: There is no such experiment.
            RunDamaged: A commit is gone.
        """
        experiment = self.experiment(number)
        if against == "parent":
            old = experiment.parent
        elif against == "starter":
            old = self.experiment(0).commit
        elif isinstance(against, int):
            old = self.experiment(against).commit
        else:
            raise UsageError(f"a diff against {against!r}; use 'parent', 'starter' or an experiment's number")
        return self._history().diff(old, experiment.commit) if old else ""

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """The events numbered above ``after``; reads only what is new since the last call."""
        return self._events.after(after)

    def send(self, kind: str, **data: Any) -> Command:
        """Leave a command for whatever process drives the run, now or later.

        Args:
            kind: ``pause``, ``resume``, ``stop``, ``keep``, ``revert``, ``comment`` or ``edit``.
            data: ``experiment=`` for keep and revert, ``text=`` for a comment, ``source=`` and
                ``hypothesis=`` for an edit, ``by=`` for who sends it.

        Raises:
            UsageError: The command is unknown, or lacks something.
            RunUnwritable: The folder cannot be written.
        """
        command = Command(kind=kind, data=data)
        self._commands.send(command)
        return command

    @property
    def waiting_commands(self) -> list[Command]:
        """The commands that nobody has carried out yet."""
        done = self._state().commands
        return [command for command in self._commands.waiting(move_wrong=False)[0] if command.id not in done]

    def _state(self) -> JournalState:
        return self._journal.state()

    def _history(self) -> History | ArchivedHistory:
        if ArchivedHistory.is_at(self.path):
            return ArchivedHistory(self.path, {one.commit: one.number for one in self.experiments})
        if self._opened_history is None:
            from autokernel.history import History

            self._opened_history = History(self.path, self.target.branch)
        return self._opened_history
