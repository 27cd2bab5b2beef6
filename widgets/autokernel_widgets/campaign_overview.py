"""The targets of a campaign in a table: how far each is, what is next and why, and what the model gains by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import traitlets

from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.plaintext import clean, one_line
from autokernel.scheduler import Standing, offer
from autokernel_widgets.bars import BarPanel, bar
from autokernel_widgets.campaign_driving import CampaignDriver
from autokernel_widgets.campaign_source import CampaignSource, CampaignState
from autokernel_widgets.deciding import driver_words
from autokernel_widgets.driving import PLACES
from autokernel_widgets.markup import Node, node

__all__ = ["CampaignOverview", "recovered", "word_of"]

_COLUMNS = ("target", "state", "share", "speedup", "ceiling", "recovered", "offers", "experiments", "without gain")
_HELP = {
    "share": "of the model's time before the campaign",
    "speedup": "of the best kernel over the model's own or PyTorch's operator; below 1 the model keeps what it has",
    "ceiling": "speedup at the roofline floor, as far as it is known",
    "recovered": "the part of the time above the floor that is won back",
    "offers": "the part of the model's time that more work can be expected to give back",
    "without gain": "experiments in a row that brought nothing",
}
_NUMERIC = {"share", "speedup", "ceiling", "offers", "experiments", "without gain"}
_TURNS = 12


class CampaignOverview(BarPanel):
    """The state of a campaign, with Start, Pause, Stop, who decides, and a row per target.

    What is pressed here is a command in the campaign's folder or in that of a run, so two windows agree, and a
    campaign in another process obeys too.

    Args:
        source: The campaign.
        experiments: How many a Start makes, over all targets.
        place: Where a Start runs: ``detached`` or ``notebook``.
        live: Follow the campaign by itself.

    Attributes:
        chosen: The target whose run is looked at.  It goes along with the campaign until a person chooses one.
    """

    chosen = traitlets.Unicode("")

    def __init__(
        self, source: CampaignSource, *, experiments: int = 20, place: str = "detached", live: bool = True
    ) -> None:
        if place not in PLACES:
            raise UsageError(f"cannot run in {place!r}; use {' or '.join(PLACES)}")
        self._experiments, self._place, self._by_person = experiments, place, False
        self._driver: CampaignDriver | None = None
        super().__init__(source, live=live)  # type: ignore[arg-type]
        self._driver = CampaignDriver(source, self._loop, self.refresh)

    def choose(self, name: str) -> None:
        """Look at a target's run, and stay there.

        Raises:
            UsageError: The campaign has no such target.
            Unreadable: The campaign cannot be read.
        """
        assert isinstance(self._source, CampaignSource)
        known = self._source.campaign().runs
        if name not in known:
            raise UsageError(
                f"the campaign has no target {name!r}{did_you_mean(name, known)}; it has: {', '.join(known)}"
            )
        self._by_person, self.chosen = True, name
        self.refresh()

    def _content(self) -> list[Any]:
        assert isinstance(self._source, CampaignSource)
        state = self._source.state()
        self.label = f"Campaign {self._source.name}"
        if not self._by_person or self.chosen not in state.runs:
            self.chosen = state.attention
        return node(
            "div", *_title(state, self._source.name), _standing(state), self._buttons(state), self._remarks(state),
            _next(state), _model(state), self._table(state), _turns(state), class_="ak ak-board",
        )  # fmt: skip

    def _buttons(self, state: CampaignState) -> Node:
        driven = state.driver is not None
        starting = self._driver is not None and self._driver.starting
        asks = all(run.approval == "approve" for run in state.runs.values())
        go = node("button", "Start", type="button", data_action="start", data_reads="experiments place",
                  disabled=driven or starting, class_="ak-go")  # fmt: skip
        pause = node(
            "button", "Resume" if driven and state.paused else "Pause", type="button", disabled=not driven,
            data_action="resume" if driven and state.paused else "pause", title="after the experiment in progress",
        )  # fmt: skip
        stop = node("button", "Stop", type="button", data_action="stop", disabled=not driven,
                    title="after the experiment in progress")  # fmt: skip
        count = node("label", "experiments", node("input", type="number", min=1, max=100000, value=self._experiments,
                     data_name="experiments"))  # fmt: skip
        options = [node("option", words, value=name, selected=name == self._place) for name, words in PLACES.items()]
        where = node("label", "run ", node("select", *options, data_name="place"))
        ask = node("label", node("input", type="checkbox", data_action="approval", checked=asks),
                   "ask me before anything is kept")  # fmt: skip
        return node(
            "div", go, pause, stop, count, where, ask, class_="ak-row", role="group", aria_label="Drive the campaign"
        )

    def _remarks(self, state: CampaignState) -> Node | None:
        lines = [self._driver.said if self._driver is not None else ""]
        lines += [f"{name} could not be judged: {error}" for name, error in state.failed.items()]
        entries = [node("li", clean(line, limit=600)) for line in lines if line]
        return node("ul", *entries, class_="ak-small") if entries else None

    def _table(self, state: CampaignState) -> Node:
        head = (
            node("th", name, scope="col", title=_HELP.get(name), class_="ak-num" if name in _NUMERIC else None)
            for name in _COLUMNS
        )
        rows = [self._row(one, state) for one in state.standings]
        table = node("table", node("thead", node("tr", *head)), node("tbody", *rows), class_="ak-table")
        return node("div", table, class_="ak-scroll")

    def _row(self, one: Standing, state: CampaignState) -> Node:
        button = node("button", one.name, type="button", data_action="choose", data_value=one.name,
                      aria_pressed=str(one.name == self.chosen).lower(), title="show its run below")  # fmt: skip
        named = node("span", one.name)  # where there are no buttons, the name stays
        part = recovered(one)
        cells: tuple[Node, ...] = (
            word_of(one, state), f"{100 * one.share:.1f} %",
            f"{one.speedup:.3f}× {one.over}" if one.measured else "",
            "" if one.ceiling is None else f"{one.ceiling:.2f}×", "" if part is None else _progress(part),
            f"{100 * offer(one, state.settings):.2g} %", str(one.experiments), str(one.idle),
        )  # fmt: skip
        described = (
            node("td", cell, class_="ak-num" if title in _NUMERIC else None)
            for title, cell in zip(_COLUMNS[1:], cells, strict=True)
        )
        now = state.turn is not None and state.turn["target"] == one.name
        return node("tr", node("td", button, node("span", named, class_="ak-only-static")), *described,
                    class_="ak-now" if now else None, data_id=f"target {one.name}")  # fmt: skip

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        assert self._driver is not None
        if action == "choose":
            self.choose(value)
            return ""
        if action == "start":
            count = fields.get("experiments", "")
            if not count.isdecimal():
                raise UsageError(f"{count!r} is no number of experiments; write a number such as 20")
            return self._driver.start(int(count), fields.get("place", self._place))
        if action in ("pause", "resume", "stop"):
            said: str = getattr(self._driver, action)()
            return said
        if action == "approval":
            self._driver.ask("approve" if value == "true" else "auto")
            who = "you decide what is kept" if value == "true" else "the policy decides what is kept"
            return f"{who}, from each target's next turn"
        return super()._act(action, value, fields)


def recovered(one: Standing) -> float | None:
    """The part of a target's time above its floor that its best kernel has won back, 0 to 1; None without a floor."""
    if one.ceiling is None or one.ceiling <= 1:
        return None
    return min(1.0, (1 - 1 / one.gained) / (1 - 1 / one.ceiling))


def word_of(one: Standing, state: CampaignState) -> str:
    """The state of a target in a few words."""
    run = state.runs[one.name]
    if state.turn is not None and state.turn["target"] == one.name:
        if run.state == "waiting":
            return f"▲ experiment {run.current.number if run.current else ''} waits for you"
        if run.state == "paused":
            return "‖ paused"
        judged = f"experiment {run.current.number} is being judged" if run.current else "the agent thinks"
        return f"● worked on: {judged}"
    if one.name in state.failed:
        return "✕ could not be judged"
    if run.state == "waiting":
        return f"▲ experiment {run.current.number if run.current else ''} waits for you"
    if one.finished:
        return f"◆ finished: {one.finished}"
    if run.best is None:
        return "○ not begun"
    if offer(one, state.settings) <= state.settings.least_offer:
        return "○ offers too little"
    return "○ its turn comes again"


def _title(state: CampaignState, name: str) -> list[Node]:
    what = f"{len(state.standings)} targets" + (f" of {one_line(state.model, limit=120)}" if state.model else "")
    agents = ", ".join(dict.fromkeys(one_line(run.agent, limit=40) for run in state.runs.values()))
    said = node("span", f"campaign over {what}; agent: {agents}", class_="ak-small")
    return [node("div", node("h3", name), said, class_="ak-row")]


def _standing(state: CampaignState) -> Node:
    run = state.runs.get(str(state.turn["target"])) if state.turn else None
    word = "idle" if state.driver is None else "running" if run is None else run.state
    words = {"running": "● running", "paused": "‖ paused", "waiting": "▲ waits for you", "idle": "○ idle"}
    who = "nobody drives it" if state.driver is None else f"driven by {driver_words(state.driver)}"
    made = sum(one.experiments for one in state.standings)
    kept = sum(run.tally.kept for run in state.runs.values())
    seconds = sum(one.seconds for one in state.standings)
    parts = [f"{made} experiments, {kept} kept"] + ([f"{seconds / made:.1f} s each"] if made else [])
    stopped = next((event for event in reversed(state.events) if event.get("kind") == "stopped"), None)
    ended = f"it ended: {one_line(stopped.get('reason', ''), limit=400)}" if stopped and state.driver is None else ""
    shown = words.get(word, word)
    return node(
        "div",
        node("p", node("strong", shown, class_=f"ak-state ak-state-{word}"), f" · {who} · {' · '.join(parts)}"),
        node("p", ended, class_="ak-small") if ended else None,
        role="status", aria_live="polite",
    )  # fmt: skip


def _next(state: CampaignState) -> Node:
    """What is worked on and what comes next, with the scheduler's reasons."""
    lines: list[Node] = []
    if state.turn is not None:
        count, reason = state.turn.get("experiments", ""), one_line(state.turn.get("reason", ""), limit=300)
        turn = node("p", "Now ", node("strong", str(state.turn["target"])), f", {count} experiments: {reason}.")
        lines.append(turn)
    then = "By what is known now, next " if state.turn is not None else "Next "
    name, reason = state.next.name or "nothing", one_line(state.next.reason, limit=600)
    lines.append(node("p", then, node("strong", name), f": {reason}."))
    return node("div", *lines, class_="ak-next")


def _model(state: CampaignState) -> Node:
    """The model's time before and with the kernels that were kept, a part for each target."""
    saved = sum(one.share * (1 - 1 / one.gained) for one in state.standings)
    others = max(0.0, 1 - sum(one.share for one in state.standings))
    kinds = ("info", "faint")
    parts = [(one.share / one.gained, kinds[place % 2], one.name) for place, one in enumerate(state.standings)]
    now = bar([*parts, (others, "faint", "all others"), (saved, "open", "saved")],
              f"{100 * (1 - saved):.0f} % of the model's time is left", width=520, height=20, names=True)  # fmt: skip
    words = f"The model {state.speedup:.3f}×"
    return node(
        "div",
        node("p", node("strong", words, class_="ak-predicted"), " predicted from the kernels that were kept (Amdahl); "
             f"{100 * saved:.1f} % of its time saved."),
        now, role="status", aria_live="polite",
    )  # fmt: skip


def _progress(part: float) -> Node:
    return bar([(part, "full", f"{100 * part:.0f} %")], f"{100 * part:.0f} % of the time above the floor", width=90)


def _turns(state: CampaignState) -> Node | None:
    """The last turns, the newest first: which target, why, and how it ended."""
    entries: list[Node] = []
    for event in state.events:
        kind, target = event.get("kind"), one_line(event.get("target", ""))
        if kind == "turn":
            entries.append(node("li", node("strong", target), f": {_said(event, 'reason')}"))
        elif kind == "turned":
            entries.append(node("li", f"{target} ended its turn: {_said(event, 'reason')}", class_="ak-small"))
        elif kind == "failed":
            entries.append(node("li", f"{target} could not be judged: {_said(event, 'error')}", class_="ak-problem"))
    if not entries:
        return None
    left = len(entries) - _TURNS
    rest = [node("li", f"and {left} earlier entries", class_="ak-note")] if left > 0 else []
    return node("details", node("summary", "Turns so far, the newest first"),
                node("ul", *reversed(entries[-_TURNS:]), *rest), data_id="turns")  # fmt: skip


def _said(event: Mapping[str, Any], what: str) -> str:
    return one_line(event.get(what, ""), limit=300)
