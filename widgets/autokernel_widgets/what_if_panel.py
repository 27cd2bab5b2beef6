"""What the chosen targets of a profile would bring, and the button that makes a campaign of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.errors import UsageError
from autokernel.plaintext import one_line
from autokernel_widgets.bars import BarPanel, bar
from autokernel_widgets.markup import Node, node
from autokernel_widgets.outcomes import microseconds
from autokernel_widgets.plan_making import known_targets, make, split
from autokernel_widgets.ranking_table import speedup_words
from autokernel_widgets.report_source import ReportSource
from autokernel_widgets.what_if import USUAL, Choice

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport

__all__ = ["Plan"]

_FIRST = 3


class Plan(BarPanel):
    """What the chosen targets would bring, and the button that makes a campaign of them.

    Args:
        source: The profile.
        choice: What a person chose; written here by the buttons.
        options: Of `plan_making.make`: ``campaigns``, ``runs``, ``device``, ``agent``.
        made: Called with the folder that was made.
        live: Follow the profile's file.
    """

    def __init__(
        self,
        source: ReportSource,
        choice: Choice,
        options: dict[str, Any],
        made: Callable[[Path], None],
        *,
        live: bool = True,
    ) -> None:
        self._choice, self._options, self._made, self._ask = choice, options, made, False
        super().__init__(source, live=live)  # type: ignore[arg-type]
        choice.observe(lambda change: self.refresh(), "speedups")

    def _content(self) -> list[Any]:
        assert isinstance(self._source, ReportSource)
        report = self._source.report()
        self.label = "What if: the predicted speedup of the model"
        return node(
            "div", node("h4", "What if"), self._prediction(report), self._beyond(), self._what_ifs(report),
            node("h4", "Work on them"), *self._making(report), class_="ak ak-plan",
        )  # fmt: skip

    def _prediction(self, report: ProfileReport) -> Node:
        chosen = self._choice.speedups
        if not chosen:
            words: list[Node] = ["Choose targets in the table to see what the model would gain if they were faster."]
        else:
            found, before = self._choice.predict(), report.totals.device_us
            left = bar(
                [(1 / found.speedup, "info", "left"), (1 - 1 / found.speedup, "open", "saved")],
                f"{100 / found.speedup:.0f} % of the device time would be left", width=260,
            )  # fmt: skip
            said = ", ".join(f"{one_line(name)} {speedup_words(factor)}" for name, factor in chosen.items())
            times = f"{microseconds(before)} µs → {microseconds(found.device_us)} µs of device time in one pass"
            words = [
                node("strong", f"The model {found.speedup:.3f}×", class_="ak-predicted"),
                f", {times}, with {said}.", left,
            ]  # fmt: skip
        return node("div", node("p", *words), role="status", aria_live="polite")

    def _beyond(self) -> Node | None:
        names = self._choice.beyond()
        if not names:
            return None
        words = f"Faster than the device's floor allows: {', '.join(map(one_line, names))}."
        return node("p", words, class_="ak-problem")

    def _what_ifs(self, report: ProfileReport) -> Node:
        count = min(_FIRST, len(report.targets))
        which = "the first" if count == 1 else f"the first {('one', 'two', 'three')[count - 1]}"
        nothing = not self._choice.speedups
        return node(
            "div",
            node("button", f"{USUAL:g}× on {which}", type="button", data_action="first"),
            node("button", "the chosen at their floor", type="button", data_action="floor", disabled=nothing),
            node("button", "choose none", type="button", data_action="none", disabled=nothing),
            class_="ak-row", role="group", aria_label="What if",
        )  # fmt: skip

    def _making(self, report: ProfileReport) -> list[Node]:
        covered, rest = split(report, known_targets(report, self._choice.speedups))
        words = "Make a campaign of the chosen"
        if len(covered) == 1:
            words = f"Make a run for {one_line(covered[0])}"
        elif covered:
            words = f"Make a campaign of {len(covered)} targets"
        place = self._options["runs" if len(covered) == 1 else "campaigns"]
        button = node("button", words, type="button", data_action="make", disabled=not covered, class_="ak-go")
        ask = node("label", node("input", type="checkbox", data_action="ask", checked=self._ask),
                   "ask me before anything is kept")  # fmt: skip
        lines = [f"It goes into {place}/ and starts when you press Start."] if covered else []
        if rest:
            lines.append(f"Left out, as no shipped operation covers them: {', '.join(map(one_line, rest))}.")
        if not report.plan:
            lines.append("No shipped operation covers any target of this model; `report.capture` makes specs of them.")
        return [
            node("div", button, ask, class_="ak-row", role="group", aria_label="Work on the chosen targets"),
            *(node("p", line, class_="ak-small") for line in lines),
        ]

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        assert isinstance(self._source, ReportSource)
        report = self._source.report()
        if action == "first":
            self._choice.first(_FIRST, USUAL)
        elif action == "floor":
            self._choice.at_floor()
        elif action == "none":
            self._choice.put({})
        elif action == "ask":
            self._ask = value == "true"
        elif action == "make":
            covered, _ = split(report, known_targets(report, self._choice.speedups))
            if not covered:
                raise UsageError("no target that a shipped operation covers is chosen; choose one in the table")
            folder = make(report, covered, approval="approve" if self._ask else "auto", **self._options)
            self._made(folder)
            return f"made {folder}; it is shown below"
        else:
            return super()._act(action, value, fields)
        return ""
