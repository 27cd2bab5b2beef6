"""Which target of a campaign to work on next, by how much of the model's time it still offers.

A target's *offer* is the part of the model's time that it could still give back, times the hope
that more experiments find it:

    offer = share * (1 / max(1, speedup) - 1 / ceiling) * min(1, speedup) * 2 ** (-idle / patience)

``share * (1 / max(1, speedup) - 1 / ceiling)`` is Amdahl's law: what the model would gain if the
target ran at its roofline floor instead of as it does now, with the best kernel or, while none beats
it, with what the model has.  ``min(1, speedup)`` discounts a kernel that has to catch up first.  The
last factor halves with every ``patience`` experiments that brought nothing.  So a target is left at a
plateau, near the floor, or because another one offers more now, and comes back when the others are
exhausted in their turn.

Source: G. Amdahl, AFIPS 1967; S. Williams et al., "Roofline", CACM 52(4), 2009.

Decides only; `campaign` does the work.  Shares are fractions of the model's time before the campaign.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autokernel.errors import UsageError

__all__ = ["Choice", "SchedulerSettings", "Standing", "choose", "model_speedup", "offer"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """How a campaign moves between its targets; ``[scheduler]`` in campaign.toml.

    Attributes:
        turn: Experiments on one target before the others are looked at again.
        patience: So many experiments without a gain halve the hope for a target.
        least_offer: A target that offers less than this fraction of the model's time is left alone.
        unknown_ceiling: The speedup that is taken to be possible where no floor is known.
    """

    turn: int = 5
    patience: float = 10.0
    least_offer: float = 0.001
    unknown_ceiling: float = 3.0

    def __post_init__(self) -> None:
        _require("turn", self.turn, self.turn >= 1)
        _require("patience", self.patience, self.patience > 0)
        _require("least_offer", self.least_offer, 0 <= self.least_offer < 1)
        _require("unknown_ceiling", self.unknown_ceiling, self.unknown_ceiling > 1)


def _require(name: str, value: float, holds: bool) -> None:
    if not holds:
        raise UsageError(
            f"scheduler setting {name} is {value!r}; turn must be 1 or more, patience above 0, least_offer from 0 "
            "to below 1, unknown_ceiling above 1"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """How one target stands.

    Attributes:
        name: The name of its run.
        share: Its part of the model's time before the campaign, 0 to 1.
        speedup: Of its best kernel over what the model runs today; below 1 while that is not beaten,
            1 before anything was measured.
        measured: Whether the speedup was measured; what was not is shown as such.
        over: What the speedup is over: ``the model``, as it was profiled, or ``PyTorch``'s operator.
        ceiling: The speedup at the roofline floor, or None if no floor is known.
        experiments: How many were made.
        idle: How many of them in a row, the last ones, brought no gain.
        seconds: What they took.
        tokens: Language-model tokens that they took.
        finished: Why there is nothing more to try, or "".
    """

    name: str
    share: float
    speedup: float = 1.0
    ceiling: float | None = None
    experiments: int = 0
    idle: int = 0
    seconds: float = 0.0
    tokens: int = 0
    finished: str = ""
    over: str = "PyTorch"
    measured: bool = True

    @property
    def gained(self) -> float:
        """The speedup that the model has of it: it keeps what it has while that is faster."""
        return max(1.0, self.speedup)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The next target, or None, and why, in a sentence."""

    name: str | None
    reason: str


def offer(standing: Standing, settings: SchedulerSettings) -> float:
    """The fraction of the model's time that more work on a target can be expected to give back.

    >>> round(offer(Standing(name="softmax", share=0.2, ceiling=4.0), SchedulerSettings()), 3)
    0.15
    >>> round(offer(Standing(name="softmax", share=0.2, ceiling=4.0, speedup=2.0, idle=10), SchedulerSettings()), 3)
    0.025
    >>> round(offer(Standing(name="softmax", share=0.2, ceiling=4.0, speedup=0.1), SchedulerSettings()), 3)
    0.015
    """
    if standing.finished:
        return 0.0
    ceiling = standing.ceiling or max(settings.unknown_ceiling, 1.25 * standing.speedup)
    left = standing.share * max(0.0, 1 / standing.gained - 1 / ceiling)
    return left * min(1.0, standing.speedup) * 0.5 ** (standing.idle / settings.patience)


def choose(standings: Sequence[Standing], settings: SchedulerSettings, current: str | None = None) -> Choice:
    """Say which target comes next.

    Args:
        standings: All targets.
        settings: The scheduler's settings.
        current: The target that was worked on last; it stays where another offers the same.
    """
    offers = {standing.name: offer(standing, settings) for standing in standings}
    open_ones = {name: value for name, value in offers.items() if value > settings.least_offer}
    if not open_ones:
        return Choice(None, _nothing_left(standings, settings))
    name = max(open_ones, key=lambda one: (open_ones[one], one == current))
    offered = f"it offers {100 * open_ones[name]:.2g} % of the model's time"
    if current is None or current not in offers:
        return Choice(name, offered)
    if name == current:
        return Choice(name, f"{offered}, still the most")
    before = next(standing for standing in standings if standing.name == current)
    return Choice(name, f"{offered}; {current} {_left_because(before, offers[current])}")


def _left_because(standing: Standing, offered: float) -> str:
    if standing.finished:
        return f"is finished: {standing.finished}"
    after = f" after {standing.idle} experiments without a gain" if standing.idle else ""
    return f"offers {100 * offered:.2g} %{after}"


def _nothing_left(standings: Sequence[Standing], settings: SchedulerSettings) -> str:
    parts = [f"{one.name}: {one.finished or _little(one, settings)}" for one in standings]
    return "no target offers enough any more (" + "; ".join(parts) + ")"


def _little(standing: Standing, settings: SchedulerSettings) -> str:
    return (
        f"{100 * offer(standing, settings):.2g} % of the model's time, {standing.idle} experiments without a gain, "
        f"least_offer is {100 * settings.least_offer:g} %"
    )


def model_speedup(standings: Sequence[Standing]) -> float:
    """The speedup of the whole model that the best kernels predict, by Amdahl's law.

    >>> round(model_speedup([Standing(name="softmax", share=0.5, speedup=2.0)]), 3)
    1.333
    """
    saved = sum(standing.share * (1 - 1 / standing.gained) for standing in standings)
    return 1 / (1 - saved)
