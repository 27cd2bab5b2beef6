"""Carries out commands, each once, and refuses those that do not apply, saying why.

What a command changes, it changes through the recorder, in a line of the journal that names the
command: a kill between that line and the removal of the command's file does not repeat it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from autokernel.errors import UsageError
from autokernel.events import Command
from autokernel.experiment import Experiment, State
from autokernel.recorder import Recorder

__all__ = ["Desk"]

_IMPORTED = time.time()


class Desk:
    """Where the commands of a run arrive.

    Attributes:
        stop_asked: Why the loop should end, or "".
        interrupted: A pause, a stop or an edit came; the session resets it.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.stop_asked = ""
        self.interrupted = False

    def work(self) -> None:
        """Carry out the commands that were sent; an edit waits until nothing is being judged."""
        commands, problems = self._recorder.commands.waiting()
        for problem in problems:
            self._recorder.events.write("refused", refused=problem)
        for command in commands:
            if command.id in self._recorder.state.commands:
                self._recorder.commands.discard(command)  # a kill came before its file was removed
            elif command.kind == "edit":
                self.interrupted = True
                if self._waiting() is not None:
                    self.take_edit()
            else:
                self._carry_out(command)
                self._recorder.commands.discard(command)

    def do(self, command: Command) -> Experiment | None:
        """Carry out a command of this process at once.

        Returns:
            The experiment that was decided, for keep and revert.

        Raises:
            UsageError: It does not apply; the message says why.
        """
        if command.kind == "edit":
            self._recorder.commands.send(command)
            self.work()
            return None
        experiment, refused = self._carry_out(command)
        if refused:
            raise UsageError(refused)
        return experiment

    def take_edit(self) -> Experiment | None:
        """Make the first edit that was sent the next candidate, in place of one that waits; None without one."""
        for command in self._recorder.commands.waiting()[0]:
            if command.kind != "edit" or command.id in self._recorder.state.commands:
                continue
            waiting = self._waiting()
            experiment = self._recorder.propose(
                command.data["source"],
                command.data.get("hypothesis") or "edit by a person",
                command.data.get("by") or "person",
                command=command.id,
                supersedes=None if waiting is None else waiting.number,
            )
            self._recorder.commands.discard(command)
            return experiment
        return None

    def _waiting(self) -> Experiment | None:
        return next((one for one in self._recorder.state.unfinished if one.state is State.WAITING), None)

    def _carry_out(self, command: Command) -> tuple[Experiment | None, str]:
        """Carry out anything but an edit; returns what was decided, and why it was refused."""
        if command.kind in ("keep", "revert"):
            return self._decide(command)
        if command.kind == "stop" and command.time < _process_start():
            self._recorder.command(command.id, "stop", refused="the process that it was meant for has ended already")
            return None, ""
        text = {"text": command.data["text"]} if command.kind == "comment" else {}
        self._recorder.command(command.id, command.kind, by=command.data.get("by", "person"), **text)
        if command.kind == "stop":
            self.stop_asked = "a person said stop"
        if command.kind in ("stop", "pause"):
            self.interrupted = True
        return None, ""

    def _decide(self, command: Command) -> tuple[Experiment | None, str]:
        number = command.data["experiment"]
        refused = self._objection(command.kind, number)
        if refused:
            self._recorder.command(command.id, command.kind, experiment=number, refused=refused)
            return None, refused
        experiment = self._recorder.state.experiments[number]
        advice = "" if experiment.advice == command.kind else f" against the policy's advice to {experiment.advice}"
        reason = f"a person chose to {command.kind} it{advice}: {experiment.reason}"
        decided = self._recorder.decide(number, command.kind, reason, by="person", command=command.id)
        self._recorder.restore()
        return decided, ""

    def _objection(self, kind: str, number: int) -> str:
        """Why a decision about an experiment is refused; "" if it is not."""
        experiment = self._recorder.state.experiments.get(number)
        waiting = self._waiting()
        which = f"experiment {waiting.number} waits for a decision" if waiting else "no experiment waits for a decision"
        if experiment is None:
            return f"there is no experiment {number}; {which}"
        if experiment.correctness and not experiment.passed and kind == "keep":
            return f"experiment {number} {experiment.reason}; what failed verification cannot be kept"
        if experiment.state is State.DECIDED:
            return f"experiment {number} is decided already ({experiment.decision}); {which}"
        if experiment.state is State.PROPOSED:
            return f"experiment {number} is not judged yet"
        return ""


def _process_start() -> float:
    """When this process started, seconds since 1970: a stop that is older was for another one."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime"))
        return booted + ticks / os.sysconf("SC_CLK_TCK") - 1.0  # btime is in whole seconds
    except (OSError, ValueError, IndexError, StopIteration):
        return _IMPORTED
