"""The journal: what has happened in a run, written before it takes effect.

``journal.jsonl`` is the truth about a run.  A step of an experiment is one line, synced to disk;
git references, rows of results.tsv and events follow from it and are made again when a kill came
between.  Beside it, ``experiments/<n>.json`` holds the full record of each experiment.

Kinds of lines: ``proposed``, ``judging``, ``cancelled``, ``rebased``, ``judged``, ``decided``,
``command``, ``note``.  docs/run-folder.md describes their fields.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from autokernel import files
from autokernel.experiment import Experiment, State, best_of

__all__ = ["Journal", "JournalReader", "JournalState", "Records"]


@dataclasses.dataclass
class JournalState:
    """What the journal's lines add up to.

    Attributes:
        experiments: By number, in order.
        attempts: How often the judging of an undecided experiment began and did not end.
        supersedes: For an experiment that is a person's edit of a waiting one, that one's number.
        commands: Ids of the commands that have taken effect.
        paused: True between ``pause`` and ``resume``.
        comments: What people said that the agent has not heard yet.
        notes: What a person should know about the run.
    """

    experiments: dict[int, Experiment] = dataclasses.field(default_factory=dict)
    attempts: dict[int, int] = dataclasses.field(default_factory=dict)
    supersedes: dict[int, int] = dataclasses.field(default_factory=dict)
    commands: set[str] = dataclasses.field(default_factory=set)
    paused: bool = False
    comments: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def best(self) -> Experiment | None:
        """The experiment whose kernel is on the branch; None before the baseline is decided."""
        return best_of(list(self.experiments.values()))

    @property
    def unfinished(self) -> tuple[Experiment, ...]:
        """The experiments that are not decided, in order."""
        return tuple(entry for entry in self.experiments.values() if entry.state is not State.DECIDED)

    def apply(self, entry: dict[str, Any]) -> None:
        """Take one line into account; a line of an unknown kind (a later version's) is passed over."""
        kind, number = entry.get("kind"), entry.get("number", -1)
        if entry.get("command"):
            self.commands.add(entry["command"])
        if kind in ("proposed", "rebased", "judged", "decided"):
            self.experiments[number] = Experiment.from_dict(entry["experiment"])
        if kind == "proposed":
            del self.comments[: entry.get("heard", 0)]
            if entry.get("supersedes") is not None:
                self.supersedes[number] = entry["supersedes"]
        elif kind == "judging":
            self.attempts[number] = self.attempts.get(number, 0) + 1
        elif kind in ("cancelled", "rebased", "judged", "decided"):
            self.attempts.pop(number, None)
        elif kind == "command":
            self._apply_command(entry)
        elif kind == "note":
            self.notes.append(entry["text"])

    def _apply_command(self, entry: dict[str, Any]) -> None:
        if entry.get("refused"):
            return
        if entry["name"] in ("pause", "resume"):
            self.paused = entry["name"] == "pause"
        elif entry["name"] == "comment":
            self.comments.append(entry["text"])


class JournalReader:
    """Follows a journal that another process may be writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._state = JournalState()

    def state(self) -> JournalState:
        """The state as of the last whole line."""
        if self._path.exists() and self._path.stat().st_size < self._offset:
            self._offset, self._state = 0, JournalState()
        entries, self._offset = files.read_jsonl(self._path, self._offset)
        for entry in entries:
            self._state.apply(entry)
        return self._state


class Journal:
    """The writing side; only the process that drives the run has one.

    A torn last line is cut off: what it announced has not happened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state = JournalState()
        files.cut_torn_tail(path)
        for entry in files.read_jsonl(path)[0]:
            self.state.apply(entry)

    def write(self, kind: str, **data: Any) -> None:
        """Append a line, wait until it is on disk, and take it into account.

        Raises:
            RunUnwritable: It could not be written; it has no effect.
        """
        entry = {"kind": kind, "time": files.now(), **data}
        if isinstance(entry.get("experiment"), Experiment):
            entry["number"] = entry["experiment"].number
            entry["experiment"] = entry["experiment"].to_dict()
        line = json.dumps(entry).encode() + b"\n"
        files.append(self._path, line)
        self.state.apply(json.loads(line))


class Records:
    """The folder of the experiments' full records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, number: int, record: dict[str, Any]) -> None:
        """Replace a record as a whole.

        Raises:
            RunUnwritable: The folder cannot be written; the old record is left.
        """
        files.write_atomic(self._folder / f"{number}.json", json.dumps(record, default=str))

    def read(self, number: int) -> dict[str, Any]:
        """The record of an experiment; empty if there is none or it cannot be read."""
        try:
            record = json.loads((self._folder / f"{number}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}
