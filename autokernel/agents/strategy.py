"""What kind of change is asked for next: it stays while it brings gains, and changes at a plateau.

Tiers are those of the manual.  Where memory bounds the kernel, tier 2 comes first, where compute does,
tier 3; a run that gained in a tier goes on in it.  After ``patience`` experiments without a gain the
strategy moves on: to the next tier, then to another kept kernel to start again from, and so on in turn.
The same history gives the same strategy, so a restart changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autokernel.agents.manual import TIERS
from autokernel.experiment import Experiment, State

__all__ = ["Strategy", "choose"]

_ORDERS = {"memory": (2, 1, 6, 4, 5, 3), "compute": (3, 1, 6, 4, 5, 2), "": TIERS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strategy:
    """What the next change should be.

    Attributes:
        name: ``improve``, ``next tier`` or ``restart``.
        tier: Of the manual.
        idle: How many experiments were decided since the best kernel.
        plateau: At least ``patience`` of them.
        ancestor: The kept experiment to start again from, or None.
    """

    name: str
    tier: int
    idle: int = 0
    plateau: bool = False
    ancestor: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The strategy as JSON-ready data."""
        return dataclasses.asdict(self)

    @property
    def advice(self) -> str:
        """What the model is told."""
        if self.name == "improve":
            return (
                f"Go on from the best kernel. Tier {self.tier} of the manual comes first; take another one if the "
                "figures say that the time goes elsewhere, and say so in the hypothesis."
            )
        stuck = f"The last {self.idle} experiments brought no gain, so change the kind of change, not its degree. "
        if self.name == "restart":
            return stuck + (
                f"Start again from experiment {self.ancestor}, an earlier kept kernel (its text is below), and give it "
                f"another structure than the best kernel has. Edits of it begin with the line BASE: experiment "
                f"{self.ancestor}."
            )
        return stuck + (
            f"Work in tier {self.tier} of the manual now, on the best kernel. Predict what is left to gain there first."
        )


def choose(
    experiments: Sequence[Experiment],
    best: Experiment,
    *,
    bound: str,
    patience: int,
    trace: Callable[[int], Mapping[str, Any]],
) -> Strategy:
    """Say what the next change should be.

    Args:
        experiments: All of the run, in order.
        best: The best of them.
        bound: ``memory`` or ``compute``: what bounds the operation on the device; "" if unknown.
        patience: After how many experiments without a gain the strategy changes.
        trace: ``trace(number)`` is what the agent recorded for an experiment.
    """
    idle = sum(one.number > best.number and one.state is State.DECIDED for one in experiments)
    order = _ORDERS.get(bound, TIERS)
    start = _tier(trace(best.number))
    at = order.index(start) if start in order else 0
    rounds = idle // patience
    earlier = [
        one.number
        for one in reversed(experiments)
        if one.decision in ("keep", "baseline") and one.passed and one.number != best.number
    ]
    restarts = min(
        rounds // 2, len(earlier)
    )  # every second round starts again from another kernel, while there are any
    if rounds == 0:
        return Strategy(name="improve", tier=order[at], idle=idle)
    tier = order[(at + rounds - restarts) % len(order)]
    if rounds % 2 == 0 and rounds // 2 <= len(earlier):
        ancestor = earlier[rounds // 2 - 1]
        return Strategy(name="restart", tier=tier, idle=idle, plateau=True, ancestor=ancestor)
    return Strategy(name="next tier", tier=tier, idle=idle, plateau=True)


def _tier(trace: Mapping[str, Any]) -> int:
    strategy = trace.get("strategy")
    tier = strategy.get("tier") if isinstance(strategy, Mapping) else None
    return tier if isinstance(tier, int) else 0
