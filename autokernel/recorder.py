"""The writing side of a run: takes an experiment from proposal to decision so that a kill loses nothing.

Each step is journalled before it takes effect; what follows from it (git references, the working
copy, the row of results.tsv, the event) can be made again from the journal at any time, and is,
when a run is opened.  So at every moment the branch shows the last kept kernel, every decided
experiment has its row, and an undecided one is judged or waited for again.

When to do what is the session's question.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autokernel import files
from autokernel.archive import ArchivedHistory
from autokernel.commit_message import commit_message
from autokernel.errors import RunDamaged, UsageError
from autokernel.events import Commands, EventLog
from autokernel.experiment import Experiment, State, figures, to_row
from autokernel.history import EXPERIMENTS, History, blob_id
from autokernel.journal import Journal, JournalState, Records
from autokernel.measurement import Measurement
from autokernel.policy import AGAIN, Decision, Judged
from autokernel.results import ResultsFile, Row
from autokernel.runfolder import Paths
from autokernel.target import FILE, Target

__all__ = ["Checkpoint", "Recorder"]

Checkpoint = Callable[[str], None]


class Recorder:
    """The run as its one driver holds it: lock, journal, history, results, events.

    Args:
        folder: The run folder.
        checkpoint: Called with the name of each step that a kill might come after; for tests.

    Raises:
        RunBusy: Another process drives the run.
        RunDamaged: The folder cannot be continued.
        RunUnwritable: It cannot be written.
    """

    def __init__(self, folder: Path, *, checkpoint: Checkpoint = lambda name: None) -> None:
        self.paths = Paths(folder.resolve())
        self.target = Target.load(folder)
        self._checkpoint = checkpoint
        if not self.paths.journal.is_file():
            raise RunDamaged(
                f"{self.paths.journal} is missing, so nothing is known of the experiments of this run; "
                f"start a new run from {self.paths.kernel}"
            )
        if ArchivedHistory.is_at(self.paths.root):
            raise UsageError(
                f"{folder} is an archive, which can be read only; to judge its kernels here, make a new run with "
                f"`autokernel new {self.target.operation} --agent replay:{folder}`"
            )
        self._lock = files.RunLock(self.paths.lock)
        try:
            self.history = History(folder, self.target.branch)
            self._check_subject()
            self.journal = Journal(self.paths.journal)
            self.events = EventLog(self.paths.events)
            self.commands = Commands(self.paths.commands)
            self.records = Records(self.paths.records)
            self._results = ResultsFile(self.paths.results, self.paths.aside)
        except BaseException:
            self._lock.release()
            raise

    @property
    def state(self) -> JournalState:
        """What has happened so far."""
        return self.journal.state

    def close(self) -> None:
        """Let another process drive the run."""
        self._lock.release()

    # The steps of an experiment

    def judged_before(self, source: str) -> Experiment | None:
        """The experiment that judged exactly this text, unless its times proved nothing."""
        identity = blob_id(source)
        same = (one for one in self.state.experiments.values() if one.blob == identity)
        return next((one for one in same if not one.reason.endswith(AGAIN)), None)

    def propose(
        self,
        source: str,
        hypothesis: str,
        agent: str,
        *,
        tokens: int | None = None,
        think_seconds: float = 0.0,
        trace: Mapping[str, Any] | None = None,
        heard: tuple[str, ...] = (),
        command: str | None = None,
        supersedes: int | None = None,
    ) -> Experiment:
        """Commit a candidate under the next number.

        Args:
            source: The text of its kernel.py.
            hypothesis: What it should bring.
            agent: Who proposes it.
            tokens: What the proposal took.
            think_seconds: What the proposal took.
            trace: The agent's exchange.
            heard: The comments that the agent was told.
            command: Id of the command that it came with.
            supersedes: The waiting experiment that it takes the place of, which is reverted.
        """
        number = max(self.state.experiments, default=-1) + 1
        experiment = Experiment(
            number=number, hypothesis=hypothesis, agent=agent, tokens=tokens, think_seconds=round(think_seconds, 3),
            blob=blob_id(source), timestamp=files.now(),
        )  # fmt: skip
        parent = (self.state.best or self.state.experiments[0]).commit
        commit = self.history.commit(source, parent, commit_message(experiment))
        experiment = dataclasses.replace(experiment, commit=commit, parent=parent)
        self._checkpoint("committed")
        self.records.write(number, {**self._record(experiment), "trace": trace, "comments": list(heard)})
        self._checkpoint("recorded")
        self.journal.write(
            "proposed", experiment=experiment, command=command, supersedes=supersedes, heard=len(heard)
        )  # fmt: skip
        self._checkpoint("journalled")
        self.history.set_refs({f"{EXPERIMENTS}/{number}": commit})
        self._checkpoint("referenced")
        self.events.write("proposed", experiment=number, hypothesis=hypothesis, agent=agent, commit=commit)
        self._finish_superseded()
        return experiment

    def rebase(self, number: int) -> Experiment:
        """Put an undecided experiment on the best kernel that there is now, which it will be timed beside."""
        experiment, best = self.state.experiments[number], self.state.best
        assert best is not None  # it was the parent of an experiment before
        source = self.history.source(experiment.commit)
        commit = self.history.commit(source, best.commit, commit_message(experiment))
        experiment = dataclasses.replace(experiment, commit=commit, parent=best.commit)
        self._checkpoint("rebase-committed")
        self.records.write(number, {**self.records.read(number), **self._record(experiment)})
        self.journal.write("rebased", experiment=experiment)
        self._checkpoint("rebase-journalled")
        self.history.set_refs({f"{EXPERIMENTS}/{number}": commit})
        self.events.write("rebased", experiment=number, onto=best.number, commit=commit)
        return experiment

    def judging(self, number: int) -> None:
        """Note that the judging of an experiment begins."""
        self.journal.write("judging", number=number)
        self.events.write("judging", experiment=number)
        self._checkpoint("judging")

    def cancelled(self, number: int) -> None:
        """Note that the judging of an experiment was called off, through no fault of the candidate."""
        self.journal.write("cancelled", number=number)

    def judged(self, number: int, evaluation: Judged, advice: Decision, *, seconds: float, waits: bool) -> Experiment:
        """Write down a judgement.

        Args:
            number: The experiment.
            evaluation: The verdict and the measurements.
            advice: What the policy makes of it.
            seconds: From the proposal to the verdict.
            waits: A person decides.
        """
        experiment = dataclasses.replace(
            self.state.experiments[number],
            state=State.WAITING if waits else State.PROPOSED,
            advice=advice.kind,
            reason=advice.reason,
            seconds=round(seconds, 3),
            timestamp=files.now(),
            **figures(evaluation.verdict, evaluation.confirmation or evaluation.measurement),
        )
        record = {
            **self.records.read(number),
            **self._record(experiment),
            "verdict": evaluation.verdict.to_dict(),
            "measurement": _as_dict(evaluation.measurement),
            "confirmation": _as_dict(evaluation.confirmation),
        }
        self.records.write(number, record)
        self._checkpoint("judgement-recorded")
        self.journal.write("judged", experiment=experiment)
        self._checkpoint("judgement-journalled")
        if waits:
            self.events.write("waiting", experiment=number, advice=advice.kind, reason=advice.reason)
        return experiment

    def decide(
        self, number: int, decision: str, reason: str, *, by: str = "policy", command: str | None = None
    ) -> Experiment:
        """Make a decision take effect: the final commit, the references, the row, the event.

        Args:
            number: An experiment that was judged.
            decision: ``baseline``, ``keep`` or ``revert``.
            reason: In a sentence.
            by: ``policy`` or ``person``.
            command: Id of the command that decides.
        """
        experiment = dataclasses.replace(
            self.state.experiments[number],
            state=State.DECIDED, decision=decision, reason=reason, decided_by=by, timestamp=files.now(),
        )  # fmt: skip
        commit = self.history.reworded(experiment.commit, commit_message(experiment))
        experiment = dataclasses.replace(experiment, commit=commit)
        self._checkpoint("decision-committed")
        self.records.write(number, {**self.records.read(number), **self._record(experiment)})
        self._checkpoint("decision-recorded")
        self.journal.write("decided", experiment=experiment, command=command)
        self._checkpoint("decision-journalled")
        targets = {f"{EXPERIMENTS}/{number}": commit}
        if decision in ("keep", "baseline"):
            targets[self.history.branch] = commit
        self.history.set_refs(targets)
        self._checkpoint("branch-moved")
        self._results.append(self._row(experiment))
        self._checkpoint("row-written")
        self._announce(experiment)
        return experiment

    def command(self, identity: str, name: str, **data: Any) -> None:
        """Note that a command took effect (or was refused, with ``refused=`` saying why)."""
        self.journal.write("command", command=identity, name=name, **data)
        self.events.write("refused" if data.get("refused") else "command", command=name, **data)

    def note(self, text: str) -> None:
        """Write down what a person should know."""
        self.journal.write("note", text=text)
        self.events.write("note", text=text)

    # The working copy

    def edited(self) -> str | None:
        """What a person wrote into kernel.py, or None if it holds a kernel that the history has."""
        text = self.history.working_text()
        if text is None or not text.strip():
            return None
        identity = blob_id(text)
        return None if any(one.blob == identity for one in self.state.experiments.values()) else text

    def restore(self) -> None:
        """Make kernel.py the best kernel; what a person wrote into it is committed aside first."""
        best = self.state.best or self.state.experiments[0]
        text = self.history.working_text()
        if text is not None and blob_id(text) == best.blob:
            return
        text = self.edited()
        if text is not None:
            name = self.history.save_edit(text, self.history.head(), "Edit found in the run folder\n")
            self.note(f"kernel.py had been edited by hand; the edit is kept as {name}, and kernel.py is the best again")
        self._checkpoint("edit-saved")
        self.history.restore()

    # After a kill, or a person's hand

    def recover(self) -> list[str]:
        """Make everything agree with the journal.

        Returns:
            What was repaired, a sentence each; empty if all was in order.

        Raises:
            RunDamaged: The commit of the best kernel is gone.
            RunUnwritable: The folder cannot be written.
        """
        self.history.drop_stale_locks()
        done = [self._recover_references(), self._recover_branch(), *self._results.repair(self._rows())]
        left = self.history.attach()
        if left:
            done.append(f"HEAD was on {left}; it is on the run's branch again")
        for experiment in self.state.experiments.values():
            if experiment.state is State.DECIDED and experiment.number > self.events.decided:
                self._announce(experiment)
        self._finish_superseded()
        self.history.sync_index()
        notes = [note for note in done if note]
        if notes:
            self.events.write("recovered", notes=notes)
        return notes

    def _recover_references(self) -> str:
        refs = self.history.refs()
        wrong = {
            f"{EXPERIMENTS}/{one.number}": one.commit
            for one in self.state.experiments.values()
            if refs.get(f"{EXPERIMENTS}/{one.number}") != one.commit
        }
        wrong = {name: commit for name, commit in wrong.items() if self.history.exists(commit)}
        if wrong:
            self.history.set_refs(wrong)
        return f"git references were set again: {', '.join(wrong)}" if wrong else ""

    def _recover_branch(self) -> str:
        best = self.state.best or self.state.experiments.get(0)
        if best is None:
            return ""
        head = self.history.ref(self.history.branch)
        if head == best.commit:
            return ""
        if not self.history.exists(best.commit):
            raise RunDamaged(
                f"the commit {best.commit[:12]} of the best kernel (experiment {best.number}) is gone from "
                f"{self.paths.root}; fetch it back from a copy, or start a new run from {self.paths.kernel}"
            )
        known = {one.commit for one in self.state.experiments.values()}
        kept = ""
        if head is not None and head not in known and self._by_hand(head):
            kept = f"; the commit {head[:12]}, made by hand, is kept as {self.history.keep_commit(head)}"
        self.history.set_refs({self.history.branch: best.commit})
        return f"the branch was put on experiment {best.number}, the best verified kernel{kept}"

    def _by_hand(self, commit: str) -> bool:
        """False for the commit of an experiment before its decision was written into its message."""
        return self.history.kernel_blob(commit) not in {one.blob for one in self.state.experiments.values()}

    def _finish_superseded(self) -> None:
        for number, old in list(self.state.supersedes.items()):
            if self.state.experiments[old].state is State.WAITING:
                self.decide(old, "revert", f"a person edited it; see experiment {number}", by="person")

    def _check_subject(self) -> None:
        committed = Target.from_toml(self.history.file(self.history.branch, FILE))
        changed = [name for name, value in committed.subject.items() if self.target.subject[name] != value]
        if changed:
            raise RunDamaged(
                f"{self.paths.root / FILE} now has another {', '.join(changed)}, so experiments could not be compared; "
                f"undo that (`git -C {self.paths.root} diff {FILE}`), or start a new run with these values"
            )

    def _announce(self, experiment: Experiment) -> None:
        speedups = {name: dataclasses.asdict(ratio) for name, ratio in experiment.speedups.items()}
        self.events.write(
            "decided", experiment=experiment.number, decision=experiment.decision, reason=experiment.reason,
            by=experiment.decided_by, correctness=experiment.correctness, speedups=speedups, commit=experiment.commit,
            worker=experiment.worker,
        )  # fmt: skip

    def _rows(self) -> list[Row]:
        return [self._row(one) for one in self.state.experiments.values() if one.state is State.DECIDED]

    def _row(self, experiment: Experiment) -> Row:
        target = self.target
        return to_row(
            experiment, tag=target.tag, operation=target.operation, backend=target.backend, dtype=target.dtype
        )

    def _record(self, experiment: Experiment) -> dict[str, Any]:
        target = self.target
        about = {"operation": target.operation, "backend": target.backend, "dtype": target.dtype}
        return {"format": 1, **experiment.to_dict(), **about, "device": target.device}


def _as_dict(measurement: Measurement | None) -> dict[str, Any] | None:
    return None if measurement is None else measurement.to_dict()
