"""What was tried, as text for a model: outcome, verdict, measurement of an experiment.

Nothing that a verdict does not print: the failing case with its reason and how many cases passed, never
the inputs, the golden values or what other cases there are.  Figures are those of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autokernel.experiment import Experiment, State
from autokernel.measurement import CaseTiming, Measurement, Ratio
from autokernel.plaintext import clean, one_line
from autokernel.verdict import Status, Verdict

__all__ = ["details", "line", "outcome", "timing_text"]

_LONGEST_REASON = 3000  # characters; a compiler's first error is within


def outcome(experiment: Experiment) -> str:
    """``baseline``, ``kept``, ``reverted``, ``rejected``, or how far it has come."""
    if experiment.state is not State.DECIDED:
        return experiment.state.value
    if experiment.decision == "revert" and not experiment.passed:
        return "rejected"
    return {"keep": "kept", "revert": "reverted"}.get(experiment.decision, experiment.decision)


def line(experiment: Experiment) -> str:
    """An experiment in one line."""
    words = [f"{experiment.number}: {outcome(experiment)}"]
    over_best = experiment.speedups.get("incumbent")
    if over_best is not None:
        words.append(f"{interval(over_best)} over the best")
    if not experiment.passed and experiment.correctness:
        stage = f" in {experiment.failed_stage}" if experiment.failed_stage else ""
        words.append(f"{experiment.correctness}{stage}")
    words.append(one_line(experiment.hypothesis, limit=160))
    return "; ".join(words)


def details(experiment: Experiment, record: Mapping[str, Any]) -> str:
    """An experiment with everything that its verdict and its measurement say.

    Args:
        experiment: The summary.
        record: The full record; what is missing in it, or cannot be read, is left out.
    """
    lines = [
        f"experiment {experiment.number}: {outcome(experiment)}",
        f"hypothesis: {one_line(experiment.hypothesis, limit=600)}",
        f"decided: {clean(experiment.reason, limit=_LONGEST_REASON)}",
    ]
    verdict, measurement = _verdict(record), _measurement(record)
    if verdict is not None and not verdict.accepted:
        lines += _rejection(verdict)
    elif verdict is not None and verdict.skipped:
        lines.append(f"not tested: {len(verdict.skipped)} cases, the first: {_untested(verdict)}")
    if measurement is not None:
        lines.append(timing_text(measurement))
    return "\n".join(lines)


def timing_text(measurement: Measurement) -> str:
    """A measurement: for each timing case the latencies, the speedups and the distance to the floor."""
    lines = []
    for case in measurement.cases:
        times = ", ".join(f"{name} {one.latency_us:.5g} us" for name, one in case.contestants.items())
        speedups = ", ".join(f"{interval(ratio)} over {name}" for name, ratio in case.speedups.items())
        lines.append(f"{case.label} (timed by {case.method}): {times}; {speedups}{_distance(case)}")
        candidate = case.contestants["candidate"]
        if case.method != "wall" and candidate.call_us > 1.5 * candidate.latency_us:
            lines.append(f"  a caller waits {candidate.call_us:.5g} us: launches, not the kernel, are the cost")
    lines += [f"note: {one_line(note)}" for note in measurement.notes]
    lines += ["the device's clocks fell meanwhile"] if measurement.throttled else []
    return "\n".join(lines)


def interval(ratio: Ratio) -> str:
    """A speedup with its 95 % interval."""
    return f"{ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"


def _distance(case: CaseTiming) -> str:
    words = []
    if case.floor_us is not None:
        words.append(f"floor {case.floor_us:.4g} us")
    if case.fraction_of_peak is not None:
        words.append(f"{100 * case.fraction_of_peak:.0f} % of the roofline")
    if case.gb_per_s is not None:
        words.append(f"{case.gb_per_s:.4g} GB/s")
    if case.tflop_per_s is not None:
        words.append(f"{case.tflop_per_s:.4g} TFLOP/s")
    return "; " + ", ".join(words) if words else ""


def _rejection(verdict: Verdict) -> list[str]:
    """The stages that were reached, the failing case, the findings."""
    lines = []
    for stage in verdict.stages:
        passed = sum(case.status is Status.PASS for case in stage.cases)
        lines.append(f"stage {stage.name.value}: {stage.status.value}, {passed} cases passed")
        failure = stage.first_failure
        if failure is not None and verdict.error != failure.reason:
            reason = clean(failure.reason, limit=_LONGEST_REASON)
            lines.append(f"  failing case {one_line(failure.label)} ({failure.status.value}): {reason}")
    if verdict.error:
        lines.append(f"error: {clean(verdict.error, limit=_LONGEST_REASON)}")
    lines += [f"finding {finding.kind}: {one_line(finding.evidence, limit=600)}" for finding in verdict.findings]
    return lines


def _untested(verdict: Verdict) -> str:
    case = verdict.skipped[0]
    return f"{one_line(case.label)}: {one_line(case.reason)}"


def _verdict(record: Mapping[str, Any]) -> Verdict | None:
    try:
        return Verdict.from_dict(record["verdict"]) if record.get("verdict") else None
    except (KeyError, TypeError, ValueError):
        return None


def _measurement(record: Mapping[str, Any]) -> Measurement | None:
    data = record.get("confirmation") or record.get("measurement")
    try:
        return Measurement.from_dict(data) if data else None
    except (KeyError, TypeError, ValueError):
        return None
