"""What an experiment changed, as git sees it: unified or side by side, with the changed words marked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.errors import UsageError
from autokernel.experiment import Experiment
from autokernel.plaintext import one_line
from autokernel.runfolder import RunFolder
from autokernel_widgets.difference import Difference, Line, read_diff, side_by_side
from autokernel_widgets.following import RunSource
from autokernel_widgets.highlight import visible
from autokernel_widgets.markup import Node, classes, node
from autokernel_widgets.panel import Panel

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["DiffControls", "DiffView", "difference_of"]

LAYOUTS = ("unified", "side by side")


class DiffControls:
    """Which diff a person asked for: against what, and in which layout."""

    def __init__(self, against: str | int = "parent", layout: str = "unified") -> None:
        if layout not in LAYOUTS:
            raise UsageError(f"the layout is {layout!r}; use {' or '.join(map(repr, LAYOUTS))}")
        if isinstance(against, bool) or not (against in ("parent", "starter") or isinstance(against, int)):
            raise UsageError(f"a diff against {against!r}; use 'parent', 'starter' or an experiment's number")
        self.against = against
        self.layout = layout

    def act(self, action: str, value: str) -> bool:
        """Take a person's choice; False if the action is none of ours."""
        if action == "layout" and value in LAYOUTS:
            self.layout = value
        elif action == "against" and (value in ("parent", "starter") or value.isdecimal()):
            self.against = int(value) if value.isdecimal() else value
        else:
            return False
        return True

    def tree(self, source: RunSource, number: int) -> list[Any]:
        """The diff of an experiment with its controls.

        Raises:
            Unreadable: It cannot be read.
        """
        change = difference_of(source, number, self.against)
        others = source.read(lambda folder: folder.experiments)
        return node(
            "section",
            node("div", self._chooser(others, number), self._layouts(), _counts(change), class_="ak-row"),
            _table(change, self.layout) if change.lines else node("p", self._equal(number), class_="ak-note"),
            node("p", f"{change.left_out} more lines are not shown; git has them all", class_="ak-note")
            if change.left_out
            else None,
            class_="ak-diff",
            aria_label=f"Diff of experiment {number}",
        )

    def _chooser(self, experiments: list[Experiment], number: int) -> Node:
        choices = [("parent", "its parent (the best at that time)"), ("starter", "the starting kernel")]
        choices += [
            (str(one.number), f"experiment {one.number}: {one_line(one.hypothesis, limit=60)}")
            for one in reversed(experiments)
            if one.number != number
        ][:200]
        options = [node("option", label, value=value, selected=value == str(self.against)) for value, label in choices]
        return node("label", "compared with ", node("select", *options, data_action="against", data_value=self.against))

    def _layouts(self) -> Node:
        buttons = [
            node("button", name, type="button", data_action="layout", data_value=name, aria_pressed=_flag(name, self))
            for name in LAYOUTS
        ]
        return node("span", *buttons, class_="ak-group", role="group", aria_label="Layout of the diff")

    def _equal(self, number: int) -> str:
        if number == 0 and self.against == "parent":
            return "the starting kernel has no parent; compare it with another experiment"
        return "the two kernels are the same, character by character"


class DiffView(Panel):
    """The diff of one experiment.

    Args:
        run: A run folder, its path, or a session.
        n: The experiment.
        against: ``parent`` (the best kernel when it was proposed), ``starter``, or a number.
        layout: ``unified`` or ``side by side``.
        live: Follow the run by itself.

    Raises:
        UsageError: ``against`` or ``layout`` is none of these.
    """

    def __init__(
        self,
        run: RunFolder | Session | str | Path,
        n: int,
        *,
        against: str | int = "parent",
        layout: str = "unified",
        live: bool = True,
    ) -> None:
        self._controls = DiffControls(against, layout)
        super().__init__(run, selected=n, live=live)

    def _content(self) -> list[Any]:
        experiment = self._source.read(lambda folder: folder.experiment(self.selected))
        self.label = f"Diff of experiment {self.selected}"
        heading = f"Experiment {self.selected}: {one_line(experiment.hypothesis)}"
        return node("div", node("h3", heading), self._controls.tree(self._source, self.selected), class_="ak")

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        return "" if self._controls.act(action, value) else super()._act(action, value, fields)


def difference_of(source: RunSource, number: int, against: str | int = "parent") -> Difference:
    """What experiment ``number`` changed against its parent, the starter, or another experiment.

    Raises:
        Unreadable: It cannot be read.
    """

    def read(folder: RunFolder) -> Difference:
        text = folder.diff(number, against)
        return read_diff(text, _old_source(folder, number, against), folder.source(number))

    return source.read(read)


def _old_source(folder: RunFolder, number: int, against: str | int) -> str:
    if isinstance(against, int):
        return folder.source(against)
    if against == "starter":
        return folder.source(0)
    parent = folder.experiment(number).parent
    return next((folder.source(one.number) for one in folder.experiments if parent and one.commit == parent), "")


def _flag(name: str, controls: DiffControls) -> str:
    return "true" if controls.layout == name else "false"


def _counts(change: Difference) -> Node:
    return node(
        "span",
        node("span", f"+{change.added}", class_="ak-plus", aria_label=f"{change.added} lines added"),
        " ",
        node("span", f"-{change.removed}", class_="ak-minus", aria_label=f"{change.removed} lines removed"),
    )


def _table(change: Difference, layout: str) -> Node:
    rows = _unified(change) if layout == "unified" else _beside(change)
    return node(
        "div", node("table", node("tbody", *rows), class_=classes("ak-code", layout != "unified" and "ak-beside")),
        class_="ak-scroll", tabindex=0, role="region", aria_label=f"Changed lines, {layout}",
    )  # fmt: skip


def _unified(change: Difference) -> list[Node]:
    signs = {"removed": "-", "added": "+", "same": " ", "hunk": "", "note": ""}
    return [
        node("tr", node("td", _wide(line), colspan=4), class_=f"ak-{line.kind}")
        if line.kind in ("hunk", "note")
        else node(
            "tr", _number(line.old), _number(line.new), node("td", signs[line.kind], class_="ak-sign"), _code(line),
            class_=f"ak-{line.kind}",
        )
        for line in change.lines
    ]  # fmt: skip


def _beside(change: Difference) -> list[Node]:
    rows: list[Node] = []
    for left, right in side_by_side(change.lines):
        if left is not None and left.kind in ("hunk", "note"):
            rows.append(node("tr", node("td", _wide(left), colspan=4), class_=f"ak-{left.kind}"))
            continue
        rows.append(node("tr", *_half(left, "old"), *_half(right, "new")))
    return rows


def _half(line: Line | None, side: str) -> tuple[Node, Node]:
    if line is None:
        return node("td", class_="ak-no ak-empty"), node("td", class_="ak-line ak-empty")
    number = line.old if side == "old" else line.new
    return _number(number, line.kind), _code(line, line.kind)


def _number(number: int | None, kind: str | None = None) -> Node:
    return node("td", "" if number is None else str(number), class_=classes("ak-no", kind and f"ak-{kind}"))


def _code(line: Line, kind: str | None = None) -> Node:
    spans = [
        node("span", visible(span.text), class_=classes(span.kind and f"ak-t{span.kind}", span.changed and "ak-word"))
        if span.kind or span.changed
        else visible(span.text)
        for span in line.spans
    ]
    return node("td", *spans, class_=classes("ak-line", kind and f"ak-{kind}"))


def _wide(line: Line) -> str:
    return visible(line.text)
