"""What if some targets of a model were faster: the choice of a person, and what Amdahl's law predicts of it.

One `Choice` is shared by the table, the chart, the sliders and the panel, so that they agree.
The law itself is `ProfileReport.what_if`.  Units: microseconds; a speedup of 2 halves the time.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import traitlets

from autokernel.errors import UsageError
from autokernel_widgets.report_source import ReportSource

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport, Target
    from autokernel.profiling import WhatIf as Prediction

__all__ = ["LEAST_LIMIT", "Choice", "bound_of", "floor_speedup", "limit_of"]

USUAL = 2.0
LEAST_LIMIT, _MOST_LIMIT = 10.0, 100.0


def floor_speedup(target: Target) -> float | None:
    """The speedup of a target at its roofline floor; None where no floor is known."""
    left = target.device_us - target.recoverable_us
    return target.device_us / left if target.recoverable_us > 0 and left > 0 else None


def bound_of(target: Target) -> float | None:
    """As `floor_speedup`, but only where the floor binds: all data are larger than the device's cache."""
    known = all(one.floor_us is not None and one.floor_is_bound for one in target.variants)
    return floor_speedup(target) if known else None


def limit_of(target: Target) -> float:
    """Where a slider for the target ends: 10, or at its floor if that is further, at most 100."""
    return float(min(_MOST_LIMIT, max(LEAST_LIMIT, math.ceil(floor_speedup(target) or 0.0))))


class Choice(traitlets.HasTraits):
    """The chosen targets of a profile, each with a speedup.

    Attributes:
        speedups: By the target's name, in the order of the ranking; from 1 to `limit_of` the target.
    """

    speedups: traitlets.Dict[str, float] = traitlets.Dict()

    def __init__(self, source: ReportSource) -> None:
        super().__init__()
        self._source = source

    def put(self, speedups: dict[str, float]) -> None:
        """Choose exactly these targets.

        Raises:
            UsageError: The profile has no such target, or the speedup is none.
            Unreadable: The profile cannot be read.
        """
        report = self._source.report()
        for name, speedup in speedups.items():
            target = report.target(name)
            if isinstance(speedup, (bool, str)) or not 1.0 <= speedup <= limit_of(target):
                raise UsageError(f"the speedup of {name} is {speedup!r}; give a number from 1 to {limit_of(target):g}")
        self.speedups = {one.name: float(speedups[one.name]) for one in report.targets if one.name in speedups}

    def toggle(self, name: str, chosen: bool) -> None:
        """Choose a target (for a start twice as fast), or drop it."""
        others = {one: speedup for one, speedup in self.speedups.items() if one != name}
        self.put({**others, name: self.speedups.get(name, USUAL)} if chosen else others)

    def first(self, count: int, speedup: float) -> None:
        """Choose so many of the ranking's first."""
        self.put({one.name: speedup for one in self._source.report().targets[:count]})

    def at_floor(self) -> None:
        """Give each chosen target the speedup at its floor; where none is known, it keeps its own."""
        report = self._source.report()
        found = {name: floor_speedup(report.target(name)) or speedup for name, speedup in self.speedups.items()}
        self.put({name: min(speedup, limit_of(report.target(name))) for name, speedup in found.items()})

    def predict(self) -> Prediction:
        """The device time of a pass with the chosen targets as fast as they are set, and the speedup of the model.

        Raises:
            Unreadable: The profile cannot be read.
        """
        report = _by_target(self._source.report())
        known = {one.name for one in report.targets}  # the file may have changed
        return report.what_if({name: speedup for name, speedup in self.speedups.items() if name in known})

    def beyond(self) -> list[str]:
        """Chosen targets that are set faster than their floor allows."""
        chosen = [one for one in self._source.report().targets if one.name in self.speedups]
        bounds = [(one.name, bound_of(one)) for one in chosen]
        return [name for name, bound in bounds if bound is not None and self.speedups[name] > 1.005 * bound]


def _by_target(report: ProfileReport) -> Any:
    """The report with no operations: a target that is called like its operation then stands for itself alone."""
    return dataclasses.replace(report, targets=tuple(dataclasses.replace(one, operation="") for one in report.targets))
