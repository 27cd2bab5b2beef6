"""How a run talks to those who watch it, and they to it: events and commands.

Events are lines of ``events.jsonl``, numbered, appended by the one process that drives the run.
Commands are files of ``commands/``, written whole by anybody and taken in the order in which they
were written.  What a command does is the session's business; that it is done once, the journal's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autokernel import files
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean

__all__ = ["COMMANDS", "Command", "Commands", "EventLog", "EventReader"]

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "pause": (),
    "resume": (),
    "stop": (),
    "keep": ("experiment",),
    "revert": ("experiment",),
    "comment": ("text",),
    "edit": ("source",),
}
"""The kinds of commands, and what each must carry."""

_PROGRESS = re.compile(rb'"kind": ?"progress"')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """What somebody wants of the run.

    Attributes:
        kind: One of `COMMANDS`.
        data: What it applies to: ``experiment`` (number) for keep and revert, ``text`` for a
            comment, ``source`` and ``hypothesis`` for an edit; ``by`` says who sent it.
        id: Unique; also the stem of its file.
        time: When it was sent, seconds since 1970.
    """

    kind: str
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    id: str = dataclasses.field(default_factory=lambda: f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}")
    time: float = dataclasses.field(default_factory=time.time)

    def __post_init__(self) -> None:
        if self.kind not in COMMANDS:
            hint = did_you_mean(self.kind, COMMANDS)
            raise UsageError(f"unknown command {self.kind!r}{hint}; known: {', '.join(COMMANDS)}")
        for name in COMMANDS[self.kind]:
            if self.data.get(name) is None:
                raise UsageError(f"the command {self.kind!r} needs {name!r}")
        if "experiment" in self.data and not isinstance(self.data["experiment"], int):
            raise UsageError(f"the experiment's number is {self.data['experiment']!r}, not an integer")
        for name in ("text", "source", "hypothesis"):
            if not isinstance(self.data.get(name, ""), str):
                raise UsageError(f"the {name} of a {self.kind!r} command is {self.data[name]!r}, not text")


class Commands:
    """The folder of the commands that were sent and not yet taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, command: Command) -> None:
        """Leave a command for whatever process drives the run.

        Raises:
            RunUnwritable: The folder cannot be written.
        """
        data = {"id": command.id, "kind": command.kind, "time": command.time, "data": dict(command.data)}
        with files.writable(self._folder):
            self._folder.mkdir(exist_ok=True)
        files.write_atomic(self._folder / f"{command.id}.json", json.dumps(data))

    def waiting(self, *, move_wrong: bool = True) -> tuple[list[Command], list[str]]:
        """The commands in the order in which they were sent, and what is wrong with files that are none.

        A file that holds no command is renamed to ``*.wrong`` (with ``move_wrong``) and so reported once.
        """
        commands, problems = [], []
        for path in sorted(self._folder.glob("*.json")):
            try:
                raw = json.loads(path.read_bytes())
                when = float(raw.get("time", path.stat().st_mtime))
                commands.append(Command(kind=raw["kind"], data=raw.get("data", {}), id=path.stem, time=when))
            except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
                problems.append(f"{path.name} holds no command: {error}")
                with contextlib.suppress(OSError):
                    if move_wrong:
                        path.rename(path.with_suffix(".wrong"))
        return commands, problems

    def discard(self, command: Command) -> None:
        """Remove the file of a command that was carried out or refused; no file is no error."""
        (self._folder / f"{command.id}.json").unlink(missing_ok=True)


class EventLog:
    """The writing side of events.jsonl; only the process that drives the run has one.

    A torn last line is cut off.  May be called from several threads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        files.cut_torn_tail(path)
        entries, _ = files.read_jsonl(path)
        self._seq = max((int(entry.get("seq", 0)) for entry in entries), default=0)
        self.decided = max((entry["experiment"] for entry in entries if entry.get("kind") == "decided"), default=-1)
        """The last experiment whose decision was announced."""

    def write(self, kind: str, **data: Any) -> int:
        """Append an event and return its number; everything but ``progress`` is synced to disk."""
        with self._guard:
            self._seq += 1
            entry = {"seq": self._seq, "time": round(time.time(), 3), "kind": kind, **data}
            line = json.dumps(entry, default=str).encode() + b"\n"
            files.append(self._path, line, sync=_PROGRESS.search(line[:80]) is None)
            return self._seq


class EventReader:
    """The reading side: whole lines only, and each call reads only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._seq = 0

    def after(self, seq: int = 0) -> list[dict[str, Any]]:
        """The events numbered above ``seq``."""
        start = self._offset if seq >= self._seq else 0
        entries, end = files.read_jsonl(self._path, start)
        if end > self._offset:
            self._offset, self._seq = end, max((entry.get("seq", 0) for entry in entries), default=self._seq)
        return [entry for entry in entries if entry.get("seq", 0) > seq]
