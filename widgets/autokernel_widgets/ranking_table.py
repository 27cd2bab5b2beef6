"""The targets of a profile as a table, in the order to work in, with a box to choose each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from autokernel.errors import UsageError
from autokernel.plaintext import one_line
from autokernel_widgets.bars import BarPanel, bar
from autokernel_widgets.markup import Node, node
from autokernel_widgets.outcomes import microseconds
from autokernel_widgets.report_source import ReportSource
from autokernel_widgets.what_if import Choice, floor_speedup

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport, Target

__all__ = ["RankingTable", "recoverable", "speedup_words"]

_COLUMNS = ("", "n", "target", "calls", "µs", "share", "", "ceiling", "at the floor", "gain", "sizes, places")
_HELP = {
    "share": "of the device's time in one pass",
    "ceiling": "speedup of the model with this target for free (Amdahl)",
    "at the floor": "speedup of the target at its roofline floor; ~: its data fit the cache, which can beat the floor",
    "gain": "speedup of the model with this target at its floor",
}
_NUMERIC = {"n", "calls", "µs", "share", "ceiling", "at the floor", "gain"}


class RankingTable(BarPanel):
    """A row per target: share, Amdahl ceiling, speedup at the floor, expected gain; what can be recovered as a bar.

    Args:
        source: The profile.
        choice: What a person chose; written here by the boxes.
        live: Follow the profile's file.
    """

    def __init__(self, source: ReportSource, choice: Choice, *, live: bool = True) -> None:
        self._choice = choice
        super().__init__(source, live=live)  # type: ignore[arg-type]
        choice.observe(lambda change: self.refresh(), "speedups")

    def _content(self) -> list[Any]:
        assert isinstance(self._source, ReportSource)
        report = self._source.report()
        self.label = f"Targets of {one_line(report.model)}"
        rows = [self._row(place, target) for place, target in enumerate(report.targets, 1)]
        head = (
            node("th", name, scope="col", title=_HELP.get(name), class_="ak-num" if name in _NUMERIC else None)
            for name in _COLUMNS
        )
        table = node("table", node("thead", node("tr", *head)), node("tbody", *rows), class_="ak-table")
        scroll = node("div", table, class_="ak-scroll", tabindex=0, role="group", aria_label=self.label)
        notes = [node("p", one_line(note, limit=300), class_="ak-note") for note in report.notes]
        return node("div", *_heading(report), scroll, *notes, class_="ak ak-ranking")

    def _row(self, place: int, target: Target) -> Node:
        chosen = target.name in self._choice.speedups
        box = node("input", type="checkbox", data_action="choose", data_reads="target", checked=chosen,
                   aria_label=f"choose {target.name}")  # fmt: skip
        name = node("input", type="hidden", data_name="target", value=target.name)  # the box reports only yes or no
        cells = (
            str(place), target.name, str(target.calls), microseconds(target.device_us), f"{100 * target.share:.1f} %",
            _bar(target), speedup_words(target.ceiling), _floor(target), speedup_words(target.gain), _where(target),
        )  # fmt: skip
        described = (
            node("td", cell, class_="ak-num" if title in _NUMERIC else None)
            for title, cell in zip(_COLUMNS[1:], cells, strict=True)
        )
        return node("tr", node("td", box, name), *described, data_id=f"target {target.name}")

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        if action == "choose":
            if "target" not in fields:
                raise UsageError("the click named no target; run the cell again")
            self._choice.toggle(fields["target"], value == "true")
            return ""
        return super()._act(action, value, fields)


def recoverable(target: Target) -> float:
    """The part of a target's share that lies above its floor, a fraction of the model's device time."""
    return target.share * target.recoverable_us / target.device_us if target.device_us else 0.0


def speedup_words(value: float | None) -> str:
    """A speedup of a whole model or of a target, such as ``1.25×``."""
    if value is None:
        return ""
    return f"{value:.2f}×" if math.isfinite(value) else "∞"


def _heading(report: ProfileReport) -> list[Node]:
    totals = report.totals
    waits = f", of {microseconds(totals.wall_us)} µs by the clock" if totals.wall_us else ""
    what = "training" if report.training else "evaluation"
    passes = "forward and backward" if report.backward else "forward"
    inputs = ", ".join("x".join(map(str, one.shape)) + f" {one.dtype}" for one in report.inputs)
    device = one_line(report.device.get("name", "")) or "an unknown device"
    known = sum(map(recoverable, report.targets))
    lines = (
        f"{device}; {one_line(inputs)}; {what}, {passes}",
        f"One pass: {microseconds(totals.device_us)} µs of device time{waits}. "
        f"{100 * known:.0f} % of the device time lies above the floors.",
    )
    return [node("h3", f"Where the time of {one_line(report.model)} goes"),
            *(node("p", line, class_="ak-small") for line in lines)]  # fmt: skip


def _bar(target: Target) -> Node:
    above = recoverable(target)
    words = f"{100 * above:.1f} % of the model's time above the floor, {100 * (target.share - above):.1f} % at it"
    return bar([(above, "open", "above the floor"), (target.share - above, "faint", "at the floor, or none known")],
               words)  # fmt: skip


def _floor(target: Target) -> str:
    found = floor_speedup(target)
    sure = all(one.floor_is_bound for one in target.variants)
    return "" if found is None else f"{'' if sure else '~'}{speedup_words(found)}"


def _where(target: Target) -> Node:
    variant = target.variants[0]
    options = " ".join(f"{name}={value}" for name, value in variant.options.items())
    more = f"and {len(target.variants) - 1} more" if len(target.variants) > 1 else ""
    places = (
        ", ".join(target.paths[:3]) + (", …" if len(target.paths) > 3 else "") if any(target.paths) else "the model"
    )
    said = " ".join(filter(None, (variant.label, variant.dtype, options, more)))
    why = "" if target.offered else target.unlike or "no shipped operation"
    return node(
        "span",
        one_line(said, limit=120),
        node("span", f" · {one_line(places, limit=120)}", class_="ak-small"),
        node("span", f" · not for a campaign: {one_line(why, limit=160)}", class_="ak-note") if why else None,
    )
