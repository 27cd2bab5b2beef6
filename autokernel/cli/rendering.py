"""Verdicts and measurements as text for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autokernel.cli.console import console, say, text
from autokernel.measurement import Measurement, Ratio
from autokernel.plaintext import clean, one_line
from autokernel.verdict import CaseResult, Stage, Status, Verdict

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["conclusion", "ratio_text", "show_measurement", "show_verdict"]

_STYLES = {
    Status.PASS: "green",
    Status.FAIL: "bold red",
    Status.CRASH: "bold red",
    Status.TIMEOUT: "bold red",
    Status.SKIP: "yellow",
}


def show_verdict(verdict: Verdict) -> None:
    """Print a table by stage and case, the first failure explained, the findings, one line of conclusion."""
    if verdict.stages:
        console().print(_verdict_table(verdict))
    for stage in verdict.stages:
        failure = stage.first_failure
        if failure is not None:
            say(f"\nFirst failing case: {stage.name.value}, {failure.label}")
            say(f"  {failure.reason or failure.status.value}")
            break
    for finding in verdict.findings:
        say(f"\nFinding {finding.kind}: {finding.evidence}")
    if verdict.error and all(stage.first_failure is None for stage in verdict.stages):
        say(f"\n{verdict.error}")
    say()
    say(conclusion(verdict))


def _verdict_table(verdict: Verdict) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage")
    table.add_column("case", overflow="fold")
    table.add_column("status")
    for name in ("error", "bound", "error/bound", "ulp", "seconds"):
        table.add_column(name, justify="right")
    for stage in verdict.stages:
        style = _STYLES[stage.status]
        counted = f"{len(stage.cases)} case{'' if len(stage.cases) == 1 else 's'}"
        table.add_row(
            text(stage.name.value, "bold"), text(counted), text(stage.status.value, style), "", "", "", "",
            text(f"{stage.seconds:.2f}"),
        )  # fmt: skip
        for case in stage.cases:
            table.add_row(*_case_cells(case))
    return table


def _case_cells(case: CaseResult) -> list[Text]:
    label = case.label
    if case.status is Status.SKIP and case.reason:
        label += f"\n  not tested: {one_line(case.reason)}"
    return [
        text(""),
        text(label),
        text(case.status.value, _STYLES[case.status]),
        text(_figure(case.error)),
        text(_figure(case.bound)),
        text(_figure(case.error_over_bound)),
        text(_figure(case.max_ulp)),
        text(f"{case.seconds:.3f}"),
    ]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def conclusion(verdict: Verdict) -> str:
    """The verdict in one line, with what was not tested."""
    cases = [case for stage in verdict.stages for case in stage.cases]
    passed = sum(case.status is Status.PASS for case in cases)
    skipped = len(verdict.skipped)
    untested = f", {skipped} not tested" if skipped else ""
    where = f" on {one_line(verdict.device)}" if verdict.device else ""
    if verdict.accepted:
        missing = [stage.value for stage in Stage if stage not in {done.name for done in verdict.stages}]
        partial = f"; stages not run: {', '.join(missing)}" if missing else ""
        return f"ACCEPTED{where}: {passed} of {len(cases)} cases passed{untested}, {verdict.seconds:.1f} s{partial}"
    return f"REJECTED{where}, {_cause(verdict)}, {verdict.seconds:.1f} s"


def _cause(verdict: Verdict) -> str:
    if verdict.failed_stage is not None:
        return f"at verification stage {verdict.failed_stage.value}"
    kinds = ", ".join(one_line(finding.kind) for finding in verdict.findings)
    return f"for {kinds}" if kinds else "because it could not be run"


def ratio_text(ratio: Ratio | None) -> str:
    """A speedup with its interval, such as ``1.42x (1.40 to 1.44)``; ``-`` for None."""
    return "-" if ratio is None else f"{ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"


def show_measurement(measurement: Measurement) -> None:
    """Print each timing case with every contestant, then the weighted speedups."""
    from rich.table import Table

    for case in measurement.cases:
        title = f"{clean(case.label)}  (timed by {clean(case.method)})"
        table = Table(box=None, pad_edge=False, header_style="bold", title=text(title), title_justify="left")
        table.add_column("kernel")
        for name in ("latency µs", "0.2 to 0.8 quantile", "call µs", "candidate's speedup, 95 % interval"):
            table.add_column(name, justify="right")
        for name, contestant in case.contestants.items():
            spread = f"{contestant.low_us:.1f} to {contestant.high_us:.1f}"
            table.add_row(
                text(name), text(f"{contestant.latency_us:.1f}"), text(spread), text(f"{contestant.call_us:.1f}"),
                text(ratio_text(case.speedups.get(name)) if name != "candidate" else ""),
            )  # fmt: skip
        console().print(table)
        facts = [
            f"{case.tflop_per_s:.3g} TFLOP/s" if case.tflop_per_s else "",
            f"{case.gb_per_s:.1f} GB/s" if case.gb_per_s else "",
            f"floor {case.floor_us:.1f} µs" if case.floor_us else "",
            f"{case.fraction_of_peak:.0%} of the roofline" if case.fraction_of_peak else "",
        ]
        say("  " + ", ".join(fact for fact in facts if fact))
        say()
    for name, ratio in measurement.speedups.items():
        say(f"Speedup over {name}: {ratio_text(ratio)}")
    if measurement.throttled:
        say("The device's clocks fell during the measurement; measure again when it is cool.")
    for note in measurement.notes:
        say(f"Note: {note}")
