"""One card for one experiment: what was tried, what speaks for and against it, and the decision while it waits."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets

from autokernel.errors import UsageError
from autokernel.experiment import Experiment, State
from autokernel.measurement import Measurement
from autokernel.plaintext import clean, one_line
from autokernel.runfolder import RunFolder
from autokernel.verdict import Verdict
from autokernel_widgets import deciding, evidence
from autokernel_widgets.diff_view import DiffControls
from autokernel_widgets.following import Unreadable
from autokernel_widgets.markup import Node, node
from autokernel_widgets.outcomes import interval, outcome_of, times
from autokernel_widgets.panel import Panel

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["EvidenceCard"]

_LONGEST_EDIT = 200_000


class EvidenceCard(Panel):
    """The evidence for one experiment, and the decision.

    While the experiment waits for a person it offers Keep (k), Revert (r), Edit and re-verify (e) and
    Comment (c); the arrow keys go to the experiments before and after.  What failed verification has no
    Keep, and the run would refuse it.  An edit that is not yet sent stays in the browser, also over a
    reload, and nothing overwrites it.

    Args:
        run: A run folder, its path, or the session that drives it in this process.
        n: The experiment; None for the one that waits, else the last, as the run goes on.
        live: Follow the run by itself.
    """

    def __init__(self, run: RunFolder | Session | str | Path, n: int | None = None, *, live: bool = True) -> None:
        self._controls = DiffControls()
        self._follows = n is None
        self._goal = -1  # where it went by itself
        self._newest = -1
        self._drawn: tuple[object, list[Any]] = (None, [])
        super().__init__(run, selected=-1 if n is None else n, live=live)

    @property
    def follows(self) -> bool:
        """True while the card goes along with the run, until a person goes to an older experiment."""
        return self._follows

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        before = self.tree
        with contextlib.suppress(Unreadable):  # which is then shown
            self._newest = _newest(self._source.read(lambda folder: folder.experiments))
            if self._follows and self.selected != self._newest:
                self._goal = self._newest
                self.selected = self._newest
        super().refresh()
        return self.tree != before

    @traitlets.observe("selected")
    def _chosen(self, change: Any) -> None:
        """A person, or another widget, chose an experiment: stay there unless it is the newest."""
        if change.new != self._goal:
            self._follows = change.new == self._newest
        self._goal = -1

    def _content(self) -> list[Any]:
        experiments = self._source.read(lambda folder: folder.experiments)
        if not experiments:
            return node("div", node("p", "the run has no experiment yet", class_="ak-note"), class_="ak")
        newest = self._newest
        experiment = self._source.read(lambda folder: folder.experiment(self.selected))
        self.label = f"Evidence for experiment {self.selected}"
        key = (experiment, len(experiments), self._controls.against, self._controls.layout, newest)
        if key != self._drawn[0]:
            self._drawn = key, self._card(experiment, len(experiments), newest)
        return self._drawn[1]

    def _card(self, experiment: Experiment, count: int, newest: int) -> list[Any]:
        number = experiment.number
        record = self._source.record(number)
        verdict, measurement, confirmation = self._judgement(number)
        return node(
            "div",
            _head(experiment, count, newest),
            _decision(experiment),
            self._person(experiment),
            node("details", node("summary", "What it changed"), self._controls.tree(self._source, number),
                 open=True, data_id=f"diff-{number}"),
            evidence.stages(verdict, number) if verdict else node("p", "It is not judged yet.", class_="ak-note"),
            evidence.findings(verdict.findings) if verdict else None,
            evidence.timing(measurement, confirmation, number),
            evidence.roofline(confirmation or measurement, self._before(experiment)),
            evidence.cost(experiment, record),
            _heard(record),
            class_="ak ak-card",
        )  # fmt: skip

    def _judgement(self, number: int) -> tuple[Verdict | None, Measurement | None, Measurement | None]:
        return self._source.read(lambda folder: folder.judgement(number))

    def _before(self, experiment: Experiment) -> Measurement | None:
        """The measurement of the kernel that was the best when this one was proposed."""
        experiments = self._source.read(lambda folder: folder.experiments)
        for one in experiments:
            if experiment.parent and one.commit == experiment.parent:
                _, measurement, confirmation = self._judgement(one.number)
                return confirmation or measurement
        return None

    def _person(self, experiment: Experiment) -> Node:
        """Where a person writes: a kernel of their own, a comment."""
        number, place = experiment.number, f"{self._source.path}:{experiment.number}"
        source = self._source.read(lambda folder: folder.source(number))
        editor = None
        if len(source) <= _LONGEST_EDIT:
            editor = node(
                "details",
                node("summary", "Edit and re-verify (e)"),
                node("label", "kernel.py", node("textarea", source, data_draft=f"{place}:source", data_name="source",
                     rows=16, spellcheck="false", class_="ak-editor")),
                node("label", "what it should bring", node("input", type="text", data_draft=f"{place}:hypothesis",
                     data_name="hypothesis")),
                node("button", "Judge my kernel next", type="button", data_action="edit", data_value=number,
                     data_reads="source hypothesis"),
                data_id=f"edit-{number}", data_key="e", class_="ak-person",
            )  # fmt: skip
        remark = node(
            "details",
            node("summary", "Comment to the agent (c)"),
            node("label", "it reads this before its next proposal",
                 node("textarea", data_draft=f"{place}:comment", data_name="comment", rows=3)),
            node("button", "Send comment", type="button", data_action="comment", data_reads="comment"),
            data_id=f"comment-{number}", data_key="c", class_="ak-person",
        )  # fmt: skip
        return node("div", editor, remark, class_="ak-row ak-write")

    def _writing(self) -> None:
        self._follows = False  # or the next experiment would take the field away

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        if self._controls.act(action, value):
            return ""
        if action == "go":
            self._follows = value == "newest"
            self.selected = self.selected if self._follows or not value.lstrip("-").isdecimal() else int(value)
            return ""
        if action in ("keep", "revert"):
            number, _, commit = value.partition(" ")
            return deciding.decide(self._source, action, _integer(number), commit)
        if action == "edit":
            return deciding.edit(self._source, _integer(value), fields.get("source", ""), fields.get("hypothesis", ""))
        if action == "comment":
            return deciding.comment(self._source, fields.get("comment", ""))
        return super()._act(action, value, fields)


def _newest(experiments: list[Experiment]) -> int:
    """The experiment that waits, else the last; -1 without any."""
    waiting = [one.number for one in experiments if one.state is State.WAITING]
    return (waiting or [one.number for one in experiments[-1:]] or [-1])[0]


def _integer(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is no number of an experiment")
    return int(text)


def _head(experiment: Experiment, count: int, newest: int) -> Node:
    number, outcome = experiment.number, outcome_of(experiment)
    before, after = max(0, number - 1), min(count - 1, number + 1)
    return node(
        "header",
        node("div",
             node("button", "◀", type="button", data_action="go", data_value=before, data_key="ArrowLeft",
                  disabled=number == before, aria_label="the experiment before (left arrow)"),
             node("h3", f"Experiment {number} ", node("span", f"{outcome.mark} {outcome.label}",
                  class_=f"ak-badge ak-of-{outcome.key}")),
             node("button", "▶", type="button", data_action="go", data_value=after, data_key="ArrowRight",
                  disabled=number == after, aria_label="the experiment after (right arrow)"),
             node("button", "newest", type="button", data_action="go", data_value="newest",
                  disabled=number == newest, title="go along with the run"),
             class_="ak-row"),
        node("p", clean(experiment.hypothesis, limit=2000) or "no hypothesis", class_="ak-hypothesis"),
        node("p", *_facts(experiment), class_="ak-small"),
    )  # fmt: skip


def _facts(experiment: Experiment) -> list[Node]:
    facts = [f"by {one_line(experiment.agent) or '?'}", f"commit {experiment.commit[:12]}", experiment.timestamp]
    for name, said in (("incumbent", "the best before"), ("pytorch", "PyTorch")):
        ratio = experiment.speedups.get(name)
        if ratio is not None:
            facts.append(f"{times(ratio)} {said} ({interval(ratio)})")
    if experiment.worker:
        facts.append(f"judged by {one_line(experiment.worker, limit=120)}")
    if experiment.untested:
        facts.append(f"{experiment.untested} cases not tested")
    return [" · ".join(fact for fact in facts if fact)]


def _decision(experiment: Experiment) -> Node:
    """Why it was kept or reverted; or, while it waits, the two buttons."""
    reason = clean(experiment.reason, limit=1000)
    if experiment.state is State.PROPOSED:
        return node("p", "It is being judged.", class_="ak-note", role="status")
    if experiment.state is State.DECIDED:
        what = {"keep": "Kept", "revert": "Reverted"}.get(experiment.decision, "The starting kernel")
        return node(
            "p", node("strong", what), f" by {experiment.decided_by or 'policy'}: {reason}", class_="ak-decided"
        )
    value = f"{experiment.number} {experiment.commit}"
    gain = experiment.speedups.get("incumbent") or experiment.speedup
    named = f"experiment {experiment.number} ({experiment.commit[:7]}{', ' + times(gain) if gain else ''})"
    keep = None
    if experiment.passed:
        keep = node("button", f"Keep {named} (k)", type="button", class_="ak-keep", data_action="keep",
                    data_value=value, data_key="k")  # fmt: skip
    revert = node("button", "Revert it (r)", type="button", class_="ak-revert", data_action="revert", data_value=value,
                  data_key="r")  # fmt: skip
    return node(
        "div",
        node("p", node("strong", "It waits for your decision."), f" The policy says {experiment.advice or 'nothing'}: "
             f"{reason}"),
        node("div", keep, revert, class_="ak-row"),
        class_="ak-waits", role="group", aria_label="Decision",
    )  # fmt: skip


def _heard(record: Any) -> Node | None:
    heard = [clean(text, limit=2000) for text in record.get("comments") or ()]
    if not heard:
        return None
    entries = [node("li", text) for text in heard]
    return node("section", node("h4", "What the agent was told"), node("ul", *entries), aria_label="Comments")
