"""What follows from a judgement: keep or revert, and whether to go on.

A candidate is kept when it is verified and certainly faster than the best so far: the low end of
the confidence interval clears the threshold, in the measurement and again in the confirmation, and
no timing case became slower beyond noise.  Everything else is reverted, with the reason.

A person may decide otherwise, except that a candidate that failed verification is never kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

from autokernel.errors import UsageError
from autokernel.experiment import Experiment, best_of, decided
from autokernel.measurement import Measurement, Ratio
from autokernel.verdict import Verdict

__all__ = ["AGAIN", "Decision", "Judged", "Move", "PolicySettings", "decide", "next_move"]

AGAIN = "propose it again"  # ends the reason of a decision that says nothing about the kernel


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """When a candidate is kept, and when a run ends; ``[policy]`` in target.toml.

    Attributes:
        threshold: Least gain over the best kernel, as a fraction; the interval's low end must be
            above ``1 + threshold``.
        case_tolerance: How far below 1 the high end of the worst timing case's interval may lie.
        call_tolerance: By how much, as a fraction, a caller's time may grow where launches count.
        refuse_untested: Keep nothing of which some case could not be tested.
        plateau: End after so many experiments in a row without one that was kept; None: never.
        near_peak: End when the best kernel reaches this fraction of the roofline floor; None: never.
        experiments: End when the run has so many experiments; None: no limit.
        minutes: End a call of ``run`` after so many minutes; None: no limit.
    """

    threshold: float = 0.01
    case_tolerance: float = 0.01
    call_tolerance: float = 0.05
    refuse_untested: bool = False
    plateau: int | None = 40
    near_peak: float | None = 0.95
    experiments: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name in ("threshold", "case_tolerance", "call_tolerance"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) < 1, "a fraction from 0 to below 1")
        for name in ("plateau", "near_peak", "experiments", "minutes"):
            value = getattr(self, name)
            _require(name, value, value is None or value > 0, "above 0, or left out")


def _require(name: str, value: object, holds: bool, what: str) -> None:
    if not holds:
        raise UsageError(f"policy setting {name} is {value!r}; it must be {what}")


class Judged(Protocol):
    """What the policy reads of an evaluation."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def measurement(self) -> Measurement | None: ...

    @property
    def confirmation(self) -> Measurement | None: ...


@dataclasses.dataclass(frozen=True)
class Decision:
    """``keep`` or ``revert``, with the reason in a sentence."""

    kind: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Move:
    """``continue``, or ``stop`` with the cause in a word and the reason in a sentence.

    The cause is the name of the setting that ended the run: ``experiments``, ``minutes``,
    ``near_peak`` or ``plateau``.
    """

    kind: str
    reason: str = ""
    cause: str = ""


def decide(evaluation: Judged, settings: PolicySettings, *, first: bool = False) -> Decision:
    """Say whether a candidate takes the best kernel's place.

    Args:
        evaluation: The judgement; its measurements compare with the best kernel (``incumbent``).
        settings: The thresholds.
        first: There is no verified best kernel yet, so any verified candidate is one.
    """
    verdict = evaluation.verdict
    if not verdict.accepted:
        return Decision("revert", f"failed verification: {verdict.reason}")
    if settings.refuse_untested and verdict.skipped:
        case = verdict.skipped[0]
        count = len(verdict.skipped)
        return Decision("revert", f"{count} cases could not be tested, the first {case.label}: {case.reason}")
    if first:
        return Decision("keep", "the first kernel of this run that passes verification")
    if evaluation.measurement is None:
        return Decision("revert", "verified, but not measured, so nothing is known about its speed on this device")
    for name, measurement in (("measurement", evaluation.measurement), ("confirmation", evaluation.confirmation)):
        objection = next(_objections(name, measurement, settings), None)
        if objection is not None:
            return Decision("revert", objection)
    assert evaluation.confirmation is not None
    gain = _interval(evaluation.confirmation.speedups["incumbent"])
    return Decision("keep", f"{gain} times as fast as the best so far, confirmed on fresh inputs")


def _objections(name: str, measurement: Measurement | None, settings: PolicySettings) -> Iterator[str]:
    """Why a measurement does not show a gain, the weightiest first."""
    if measurement is None:
        yield f"faster in the first measurement, but there is no {name}"
        return
    ratio = measurement.speedups.get("incumbent")
    if ratio is None:
        yield f"the {name} holds no comparison with the best kernel"
        return
    least = 1 + settings.threshold
    if not ratio.low > least:
        how = "slower than" if ratio.high < 1 else "not certainly faster than"
        yield f"{how} the best: {_interval(ratio)} in the {name}, and the low end must be above {least:g}"
    if measurement.throttled:
        yield f"the device's clocks fell during the {name}, so its times prove nothing; {AGAIN}"
    if measurement.worst_case is not None and measurement.worst_case[1].high < 1 - settings.case_tolerance:
        label, worst = measurement.worst_case
        yield f"slower on one timing case, {label}: {_interval(worst)} in the {name}"
    yield from _slower_calls(name, measurement, settings.call_tolerance)


def _slower_calls(name: str, measurement: Measurement, tolerance: float) -> Iterator[str]:
    """Cases where the device is faster but a caller waits longer, because of launches."""
    for case in measurement.cases:
        incumbent = case.contestants.get("incumbent")
        call_us = case.contestants["candidate"].call_us
        if case.method == "wall" or incumbent is None:
            continue
        if call_us > incumbent.call_us * (1 + tolerance):
            yield f"a caller waits longer on {case.label}: {call_us:.4g} us, {incumbent.call_us:.4g} us for the best"


def next_move(
    experiments: Sequence[Experiment], settings: PolicySettings, *, made: int = 0, minutes: float = 0.0
) -> Move:
    """Say whether a run goes on.

    Args:
        experiments: All of the run, in order.
        settings: The limits.
        made: How many experiments this call of ``run`` made; a plateau is measured within it, so
            that a run which ended at one can be taken up again.
        minutes: How long this call of ``run`` has taken.
    """
    done = decided(experiments)
    if settings.experiments is not None and len(done) >= settings.experiments:
        return Move("stop", f"the run has its {settings.experiments} experiments", "experiments")
    if settings.minutes is not None and minutes >= settings.minutes:
        return Move("stop", f"{settings.minutes:g} minutes are over", "minutes")
    best = best_of(experiments)
    if best is None or not best.passed:
        return Move("continue")
    fraction = best.fraction_of_peak
    if settings.near_peak is not None and fraction is not None and fraction >= settings.near_peak:
        return Move("stop", f"the best kernel reaches {100 * fraction:.0f} % of the roofline floor", "near_peak")
    idle = sum(1 for experiment in done if experiment.number > best.number)
    if settings.plateau is not None and min(idle, made) >= settings.plateau:
        return Move("stop", f"the last {settings.plateau} experiments brought no gain", "plateau")
    return Move("continue")


def _interval(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
