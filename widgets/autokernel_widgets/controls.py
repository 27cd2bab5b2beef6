"""Where a run stands, and the buttons that start, pause, step and stop it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel import files
from autokernel.errors import UsageError
from autokernel.experiment import RunStatus
from autokernel.plaintext import clean, one_line
from autokernel.runfolder import Paths, RunFolder
from autokernel_widgets.deciding import driver_words
from autokernel_widgets.driving import PLACES, Driver, set_approval
from autokernel_widgets.markup import Node, node
from autokernel_widgets.outcomes import interval, times
from autokernel_widgets.panel import Panel

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["Controls"]

_TAIL_BYTES = 65_536
_STATES = {
    "running": "● running",
    "paused": "‖ paused",
    "waiting": "▲ waits for you",
    "idle": "○ idle",
}


class Controls(Panel):
    """The state of a run in a few lines, with Start, Pause, Step, Stop and who decides.

    What is pressed here is a command in the run folder, so two windows on one run agree, and a run in
    another process obeys too.

    Args:
        run: A run folder, its path, or the session that drives it in this process.
        experiments: How many a Start makes.
        place: Where a Start runs: ``detached`` or ``notebook``.
        live: Follow the run by itself.
    """

    def __init__(
        self,
        run: RunFolder | Session | str | Path,
        *,
        experiments: int = 20,
        place: str = "detached",
        live: bool = True,
    ) -> None:
        if place not in PLACES:
            raise UsageError(f"cannot run in {place!r}; use {' or '.join(PLACES)}")
        self._place = place
        self._experiments = experiments
        self._events = _EventTail()
        self._driver: Driver | None = None
        super().__init__(run, live=live)
        self._driver = Driver(self._source, self._loop, self.refresh)

    def _content(self) -> list[Any]:
        status = self._source.read(lambda folder: folder.status)
        self._events.read(self._source.path)
        self.label = f"Controls of the run {self._source.name}"
        return node(
            "div",
            _title(status, self._source.name),
            _state(status, self._events, self._approval(status)),
            self._buttons(status),
            self._waiting(status),
            self._remarks(status),
            class_="ak ak-controls",
        )

    def _approval(self, status: RunStatus) -> str:
        """Who decides: as the driving process was told, else as target.toml says."""
        return (self._events.approval or status.approval) if status.driver is not None else status.approval

    def _buttons(self, status: RunStatus) -> Node:
        driven = status.driver is not None and not self._is_ready(status)
        starting = self._driver is not None and self._driver.starting
        paused = status.state == "paused"
        go = node("button", "Start", type="button", data_action="start", data_reads="experiments place",
                  disabled=driven or starting, class_="ak-go")  # fmt: skip
        pause = node(
            "button", "Resume" if driven and paused else "Pause", type="button", disabled=not driven,
            data_action="resume" if driven and paused else "pause", title="after the experiment in progress",
        )  # fmt: skip
        step = node("button", "Step", type="button", data_action="step", data_reads="place",
                    disabled=driven or starting, title="make one experiment")  # fmt: skip
        stop = node("button", "Stop", type="button", data_action="stop", disabled=not driven,
                    title="after the experiment in progress")  # fmt: skip
        count = node("label", "experiments", node("input", type="number", min=1, max=100000, value=self._experiments,
                     data_name="experiments"))  # fmt: skip
        approval = node(
            "label",
            node("input", type="checkbox", data_action="approval", checked=status.approval == "approve"),
            "ask me before anything is kept",
        )
        return node(
            "div", go, pause, step, stop, count, self._where(), approval,
            class_="ak-row", role="group", aria_label="Drive the run",
        )  # fmt: skip

    def _is_ready(self, status: RunStatus) -> bool:
        """The run's session lives in this notebook and makes nothing at the moment."""
        driver = status.driver or {}
        mine = self._source.session is not None and driver_words(driver) == "this notebook"
        return mine and not (self._driver is not None and self._driver.busy) and self._events.stopped

    def _where(self) -> Node | None:
        if self._source.session is not None:
            return None
        options = [node("option", words, value=name, selected=name == self._place) for name, words in PLACES.items()]
        return node("label", "run ", node("select", *options, data_name="place"))

    def _waiting(self, status: RunStatus) -> Node | None:
        if status.state != "waiting" or status.current is None:
            return None
        number = status.current.number
        return node(
            "p",
            node("strong", f"Experiment {number} waits for your decision. "),
            node("button", f"Show experiment {number}", type="button", data_action="show", data_value=number),
            class_="ak-waits",
            role="status",
        )

    def _remarks(self, status: RunStatus) -> Node | None:
        driver = self._driver
        lines = [self._events.problem, driver.said if driver is not None else "", *status.notes[-2:]]
        if status.driver is not None and status.approval != self._approval(status):
            lines.append("Who decides was changed; that counts from the next Start.")
        entries = [node("li", clean(line, limit=600)) for line in lines if line]
        return node("ul", *entries, class_="ak-small") if entries else None

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        if action in ("start", "step"):
            assert self._driver is not None
            approval = self._source.read(lambda folder: folder.target.approval)
            count = "1" if action == "step" else fields.get("experiments", "")
            if not count.isdecimal():
                raise UsageError(f"{count!r} is no number of experiments; write a number such as 20")
            self._events.problem = ""
            return self._driver.start(int(count), fields.get("place", self._place), approval)
        if action in ("pause", "resume", "stop"):
            self._source.read(lambda folder: folder.send(action, by="person"))
            return {"pause": "it pauses after the experiment in progress", "resume": "it goes on",
                    "stop": "it stops after the experiment in progress"}[action]  # fmt: skip
        if action == "approval":
            set_approval(self._source.path, "approve" if value == "true" else "auto")
            return "you decide what is kept" if value == "true" else "the policy decides what is kept"
        if action == "show" and value.isdecimal():
            self.selected = int(value)
            return ""
        return super()._act(action, value, fields)


class _EventTail:
    """The end of a run's events: what is going on, and what went wrong; reads only what is new."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self.doing = ""
        self.problem = ""
        self.approval = ""
        self.stopped = True

    def read(self, path: Path) -> None:
        events = Paths(path).events
        try:
            size = events.stat().st_size
        except OSError:
            return
        if self._offset is None or size < self._offset:
            self._offset = max(0, size - _TAIL_BYTES)  # a line that is cut there is passed over
        entries, self._offset = files.read_jsonl(events, self._offset)
        for event in entries:
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        kind, number = event.get("kind"), event.get("experiment", "")
        if kind == "opened":
            self.approval, self.doing, self.problem = str(event.get("approval", "")), "opening", ""
            self.stopped = True  # a process that was killed could not say so
        elif kind == "run":
            self.stopped = False
        elif kind == "stopped":
            self.stopped, self.doing = True, f"it ended: {one_line(event.get('reason', ''))}"
        elif kind == "proposing":
            self.doing = f"{one_line(event.get('agent', 'the agent'))} thinks about the next experiment"
        elif kind in ("proposed", "judging"):
            self.doing = f"experiment {number} is being judged"
        elif kind == "progress":
            words = " ".join(one_line(event[name], limit=60) for name in ("stage", "case", "worker") if event.get(name))
            self.doing = f"experiment {number} is being judged: {words}"
        elif kind in ("decided", "waiting"):
            self.doing = ""
        elif kind in ("error", "refused"):
            self.problem = clean(event.get("error") or event.get("refused") or "", limit=600)


def _title(status: RunStatus, name: str) -> Node:
    said = f"{status.operation}, {status.backend}, {status.dtype} on {status.device}; agent: {status.agent}"
    return node("div", node("h3", name), node("span", one_line(said), class_="ak-small"), class_="ak-row")


def _state(status: RunStatus, events: _EventTail, approval: str) -> Node:
    word = "idle" if status.driver is None and status.state == "running" else status.state
    counts = status.tally
    parts = [f"{counts.total} experiments: {counts.kept} kept, {counts.reverted} reverted, {counts.rejected} rejected"]
    if status.speedup is not None:
        parts.append(f"best {times(status.speedup)} PyTorch ({interval(status.speedup)})")
    if status.seconds_per_experiment is not None:
        parts.append(f"{status.seconds_per_experiment:.1f} s each")
    who = "nobody drives it" if status.driver is None else f"driven by {driver_words(status.driver)}"
    decides = "you decide" if approval == "approve" else "the policy decides"
    doing = events.doing if status.driver is not None or events.doing.startswith("it ended") else ""
    return node(
        "div",
        node("p", node("strong", _STATES.get(word, word), class_=f"ak-state ak-state-{word}"), f" · {who} · {decides}"),
        node("p", " · ".join(parts)),
        node("p", doing, class_="ak-small") if doing else None,
        role="status",
        aria_live="polite",
    )
