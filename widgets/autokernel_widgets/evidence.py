"""The evidence for one experiment as a tree: verdict, findings, timing, roofline, cost.

Everything comes from the run folder's records.  *Not tested* is shown as such, never as passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autokernel.experiment import Experiment
from autokernel.measurement import CaseTiming, Measurement
from autokernel.plaintext import clean, one_line
from autokernel.verdict import CaseResult, Finding, Stage, StageResult, Status, Verdict
from autokernel_widgets.markup import Node, node
from autokernel_widgets.outcomes import interval, microseconds, times
from autokernel_widgets.sketch import distributions

__all__ = ["cost", "findings", "roofline", "stages", "timing"]

ASKS = {
    Stage.SMOKE: "Does it run, and is a small case right?",
    Stage.SWEEP: "Is it right for every size, dtype and layout?",
    Stage.STABILITY: "Is it right on values that overflow, cancel or are not finite?",
    Stage.DETERMINISM: "Does the same input give the same bits?",
    Stage.EDGE: "Is it right where sizes are 1, odd, or just past a block?",
}
WORDS = {
    Status.PASS: "passed",
    Status.FAIL: "failed",
    Status.SKIP: "not tested",
    Status.TIMEOUT: "hung",
    Status.CRASH: "crashed",
}
MARKS = {Status.PASS: "✓", Status.FAIL: "✕", Status.SKIP: "–", Status.TIMEOUT: "✕", Status.CRASH: "✕"}
MOST_CASES = 300


def stages(verdict: Verdict, number: int) -> Node:
    """The five stages; one that failed is open and says why."""
    reached = {stage.name: stage for stage in verdict.stages}
    parts: list[Node] = [node("h4", "Verification")]
    if verdict.error:
        parts.append(node("pre", clean(verdict.error, limit=4000), class_="ak-problem"))
    for name in Stage:
        stage = reached.get(name)
        if stage is None:
            mark, said = node("span", "·", class_="ak-mark"), node("span", f" {name.value}: not reached")
            parts.append(node("p", mark, said, class_="ak-stage ak-none"))
        else:
            parts.append(_stage(stage, number))
    return node("section", *parts, aria_label="Verification")


def _stage(stage: StageResult, number: int) -> Node:
    counts = {status: sum(case.status is status for case in stage.cases) for status in Status}
    said = ", ".join(f"{count} {WORDS[status]}" for status, count in counts.items() if count)
    bad = stage.status not in (Status.PASS, Status.SKIP)
    summary = node(
        "summary",
        node("span", MARKS[stage.status], class_="ak-mark"),
        node("strong", f" {stage.name.value}"),
        f" {WORDS[stage.status]}: {said or 'no case'}, {stage.seconds:.2g} s ",
        node("span", ASKS[stage.name], class_="ak-small"),
    )
    failure = stage.first_failure
    why = node("p", f"{failure.label}: {clean(failure.reason, limit=2000)}", class_="ak-problem") if failure else None
    cases = sorted(stage.cases, key=lambda case: case.status in (Status.PASS, Status.SKIP))
    rest = len(cases) - MOST_CASES
    return node(
        "details", summary, why, _cases(cases[:MOST_CASES]),
        node("p", f"{rest} more cases passed or were not tested", class_="ak-note") if rest > 0 else None,
        open=bad, class_=f"ak-stage ak-{stage.status.value}", data_id=f"stage-{number}-{stage.name.value}",
    )  # fmt: skip


def _cases(cases: list[CaseResult]) -> Node:
    head = ("", "case", "error", "bound", "error / bound", "max ulp", "outside", "s", "remark")
    rows = [
        node(
            "tr",
            node("td", MARKS[case.status], title=WORDS[case.status], aria_label=WORDS[case.status], class_="ak-mark"),
            node("td", clean(case.label, limit=200)),
            *(
                node("td", _figure(value), class_="ak-num")
                for value in (case.error, case.bound, case.error_over_bound, case.max_ulp)
            ),
            node("td", "" if not case.mismatched else f"{case.mismatched} of {case.elements}", class_="ak-num"),
            node("td", f"{case.seconds:.2g}", class_="ak-num"),
            node("td", clean(case.reason, limit=500)),
            class_=f"ak-{case.status.value}",
        )
        for case in cases
    ]
    titles = node("tr", *(node("th", title, scope="col") for title in head))
    return _table(titles, rows, "Cases of the stage")


def findings(found: tuple[Finding, ...]) -> Node:
    """What the integrity checks saw."""
    if not found:
        return node("p", node("span", "✓", class_="ak-mark ak-pass"), " No finding of the integrity checks.")
    entries = [
        node("li", node("strong", one_line(one.kind)), ": ", clean(one.evidence, limit=1000), class_="ak-problem")
        for one in found
    ]
    return node("section", node("h4", "Integrity findings"), node("ul", *entries), aria_label="Integrity findings")


def timing(measurement: Measurement | None, confirmation: Measurement | None, number: int) -> Node | None:
    """How fast it was beside its rivals; of the confirming measurement where there is one."""
    used = confirmation or measurement
    if used is None:
        return None
    parts: list[Node] = [node("h4", "Timing"), _speedups(measurement, confirmation)]
    for index, case in enumerate(used.cases):
        body = (distributions(case), _contestants(case))
        parts.append(
            node(
                "details",
                node("summary", clean(case.label), node("span", f" {_method(case)}", class_="ak-small")),
                *body,
                open=index == 0,
                data_id=f"timing-{number}-{index}",
            )
        )
    if used.throttled:
        parts.append(node("p", "The device's clocks fell during the measurement.", class_="ak-problem"))
    parts += [node("p", clean(note), class_="ak-note") for note in used.notes]
    return node("section", *parts, aria_label="Timing")


def _speedups(measurement: Measurement | None, confirmation: Measurement | None) -> Node:
    names = {"incumbent": "over the best before", "pytorch": "over PyTorch", "compile": "over torch.compile"}
    head = node("tr", *(node("th", title, scope="col") for title in ("speedup", "measured", "confirmed, new process")))
    rows = []
    for name, said in names.items():
        ratios = [None if one is None else one.speedups.get(name) for one in (measurement, confirmation)]
        if any(ratios):
            cells = [
                node("td", f"{times(ratio)} ({interval(ratio)})" if ratio else "not measured", class_="ak-num")
                for ratio in ratios
            ]
            rows.append(node("tr", node("th", said, scope="row"), *cells))
    return _table(head, rows, "Speedups")


def _contestants(case: CaseTiming) -> Node:
    head = ("", "median µs", "0.2 to 0.8 quantile", "as a caller sees", "samples", "this kernel is faster by")
    rows = []
    for name, one in case.contestants.items():
        ratio = case.speedups.get(name)
        cells = (
            microseconds(one.latency_us), f"{microseconds(one.low_us)} to {microseconds(one.high_us)}",
            microseconds(one.call_us),
            str(len(one.samples_us)), f"{times(ratio)} ({interval(ratio)})" if ratio else "",
        )  # fmt: skip
        rows.append(node("tr", node("th", name, scope="row"), *(node("td", cell, class_="ak-num") for cell in cells)))
    titles = node("tr", *(node("th", title, scope="col") for title in head))
    return _table(titles, rows, "Contestants")


def roofline(after: Measurement | None, before: Measurement | None) -> Node | None:
    """Where the kernel and the one before it stand against the floor of the device, case by case."""
    if after is None:
        return None
    earlier = {case.label: case for case in before.cases} if before else {}
    head = ("case", "floor µs", "share of the floor", "the best before", "TFLOP/s", "GB/s")
    rows = []
    for case in after.cases:
        old = earlier.get(case.label)
        cells = (
            "no bound" if case.floor_us is None else microseconds(case.floor_us), _percent(case.fraction_of_peak),
            _percent(old.fraction_of_peak if old else None), _figure(case.tflop_per_s), _figure(case.gb_per_s),
        )  # fmt: skip
        label = node("th", clean(case.label), scope="row")
        rows.append(node("tr", label, *(node("td", cell, class_="ak-num") for cell in cells)))
    unbound = any(case.floor_us is None for case in after.cases)
    return node(
        "section",
        node("h4", "Roofline"),
        _table(node("tr", *(node("th", title, scope="col") for title in head)), rows, "Roofline"),
        node("p", "No bound: the data fit into the cache, so memory bandwidth bounds nothing.", class_="ak-note")
        if unbound else None,
        class_="ak-roofline",
    )  # fmt: skip


def cost(experiment: Experiment, record: Mapping[str, Any]) -> Node:
    """What the experiment took: the agent's thinking and tokens, the judging, the memory."""
    facts = {
        "agent": one_line(experiment.agent) or "?",
        "tokens": "none" if experiment.tokens is None else f"{experiment.tokens:,}",
        "thinking": f"{experiment.think_seconds:.1f} s",
        "judging": f"{experiment.seconds:.1f} s",
        "memory of a call": "not measured"
        if experiment.peak_memory_mb is None
        else f"{experiment.peak_memory_mb:.4g} MB",
        "device": one_line((record.get("verdict") or {}).get("device") or record.get("device") or "?"),
    }
    if experiment.worker:
        facts["judged by"] = one_line(experiment.worker, limit=120)
    parts = [node("span", node("span", f"{name} ", class_="ak-small"), value) for name, value in facts.items()]
    return node("section", node("h4", "Cost"), node("div", *parts, class_="ak-row ak-facts"), aria_label="Cost")


def _table(head: Node, rows: Sequence[Node], label: str) -> Node:
    """A table that scrolls where it is wider than the page."""
    table = node("table", node("thead", head), node("tbody", *rows), class_="ak-table")
    return node("div", table, class_="ak-scroll", tabindex=0, role="group", aria_label=label)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.0f} %"


def _method(case: CaseTiming) -> str:
    how = {"graph": "graph replay", "events": "device events", "wall": "wall clock"}.get(case.method, case.method)
    return f"{how}, weight {case.weight:g}"
