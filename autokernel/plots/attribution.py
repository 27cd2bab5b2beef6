"""What helped: the gain of the kept kernels, by tier of the manual, by tag, or step by step.

Each kept kernel was measured beside the best before it, paired.  The gains of one group multiply to
what the group brought, and those of all groups to what the whole run brought; they are gains in the
order in which they came, not what would be missing if one were left out.

No agent is made to say which tier it works in, so a tier is found where it stands first: named in the
hypothesis (``tier 2``); what the language model was asked for; the constants that the hypothesis
changes (``NUM_WARPS 8 -> 4``: tier 1, but what prefetches is tier 2, and the like).  A tag is a word in
brackets in the hypothesis, ``[tiling]``; else the constants that it changes; else the column ``tag`` of
a file that names experiments by it.  Where each came from stands in the table.

Source of the interval of a product: errors of logarithms add in quadrature, as measurements are independent.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence

from autokernel.errors import UsageError
from autokernel.experiment import Experiment
from autokernel.hints import did_you_mean
from autokernel.measurement import Ratio
from autokernel.plots.series import Series
from autokernel.plots.table import Table

__all__ = ["BY", "Contribution", "Step", "ablation_table", "contributions", "product", "steps"]

BY = ("tier", "tag", "step")
"""How kept kernels can be grouped; ``step`` leaves each by itself."""

_TIERS = {
    1: "tile and launch shape", 2: "memory access", 3: "compute and precision", 4: "advanced scheduling",
    5: "the architecture", 6: "the operation",
}  # fmt: skip
_NAMED_TIER = re.compile(r"\btier[\s-]*([1-6])\b", re.IGNORECASE)
_TAG = re.compile(r"\[([A-Za-z][\w .+/-]{0,30})\]")
_CONSTANT = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\s+\S+\s*->")
_CONSTANT_TIERS = (
    (re.compile(r"PREFETCH|STREAM|CACHE|EVICT|VECTOR_WIDTH|VEC_"), 2),
    (re.compile(r"EXP|TF32|PRECISION|FAST_MATH|TENSOR_CORE"), 3),
    (re.compile(r"SPLIT|PERSISTENT|SPECIALI[SZ]E"), 4),
)
_UNKNOWN = "not said"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One experiment beside the best before it.

    Attributes:
        experiment: The experiment.
        group: Its tier, its tag, or itself.
        source: Where the group was found.
        gain: Over the best before it; None if it was not timed, and for the baseline.
    """

    experiment: Experiment
    group: str
    source: str
    gain: Ratio | None

    @property
    def kept(self) -> bool:
        """It was faster for certain, or a person kept it."""
        return self.experiment.decision == "keep"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contribution:
    """What one group brought.

    Attributes:
        group: Its name.
        tried: How many experiments.
        kept: How many of them were kept.
        gain: The product of the kept ones' gains; 1 if none was kept.
        best: The largest of them, or None.
        sources: Where the group was found, for each way how often.
    """

    group: str
    tried: int
    kept: int
    gain: Ratio
    best: Ratio | None
    sources: str


def steps(series: Series, by: str = "tier") -> list[Step]:
    """All experiments but the baseline, each with its group.

    Args:
        series: Of one run.
        by: One of `BY`.

    Raises:
        UsageError: Another ``by``.
    """
    if by not in BY:
        raise UsageError(f"cannot group experiments by {by!r}{did_you_mean(by, BY)}; use {', '.join(BY)}")
    found = []
    for one in series.experiments:
        if one.decision in ("keep", "revert"):
            group, source = _group(series, one, by)
            found.append(Step(experiment=one, group=group, source=source, gain=one.speedups.get("incumbent")))
    return found


def contributions(series: Series, by: str = "tier") -> list[Contribution]:
    """What each group of a run's experiments brought: tiers in their order, others by what they brought."""
    groups: dict[str, list[Step]] = {}
    for step in steps(series, by):
        groups.setdefault(step.group, []).append(step)
    made = [_contribution(group, members) for group, members in groups.items()]
    if by == "tier":
        return sorted(made, key=lambda one: (one.group == _UNKNOWN, one.group))
    return sorted(made, key=lambda one: -one.gain.value) if by == "tag" else made


def product(ratios: Iterable[Ratio]) -> Ratio:
    """The product of independent ratios, with its interval; 1 for none."""
    value = below = above = 0.0
    for ratio in ratios:
        value += math.log(ratio.value)
        below += math.log(ratio.value / ratio.low) ** 2 if ratio.low > 0 else math.inf
        above += math.log(ratio.high / ratio.value) ** 2
    return Ratio(math.exp(value), math.exp(value - math.sqrt(below)), math.exp(value + math.sqrt(above)))


def ablation_table(series: Sequence[Series], by: str = "tier") -> Table:
    """What each group brought in each series; a last row for each says what all together brought."""
    rows: list[tuple[str | int | Ratio | None, ...]] = []
    for one in series:
        found = contributions(one, by)
        for part in found:
            rows.append((one.label, part.group, part.tried, part.kept, part.gain, part.best, part.sources))
        total = product(part.gain for part in found)
        rows.append((one.label, "all", sum(p.tried for p in found), sum(p.kept for p in found), total, None, ""))
    columns = ("run", by, "tried", "kept", "gain of those kept", "largest gain", "known from")
    note = "Gains over the best kernel before, multiplied, with 95 % intervals; not what would be lost without a group."
    return Table(columns, tuple(rows), note)


def _contribution(group: str, members: Sequence[Step]) -> Contribution:
    gains = [step.gain for step in members if step.kept and step.gain is not None]
    origins = [step.source for step in members]
    return Contribution(
        group=group, tried=len(members), kept=sum(step.kept for step in members), gain=product(gains),
        best=max(gains, key=lambda ratio: ratio.value, default=None),
        sources=", ".join(f"{origins.count(name)} {name}" for name in dict.fromkeys(origins) if name),
    )  # fmt: skip


def _group(series: Series, one: Experiment, by: str) -> tuple[str, str]:
    if by == "step":
        return f"{one.number}: {one.hypothesis}", ""
    return _tier(series, one) if by == "tier" else _tag(series, one)


def _tier(series: Series, one: Experiment) -> tuple[str, str]:
    named = _NAMED_TIER.search(one.hypothesis)
    if named is not None:
        return _title(int(named[1])), "by the hypothesis"
    strategy = series.trace(one.number).get("strategy")
    asked = strategy.get("tier") if isinstance(strategy, dict) else None
    if asked in _TIERS:
        return _title(asked), "by what was asked for"
    constants = _CONSTANT.findall(one.hypothesis)
    if constants:
        tiers = [next((tier for names, tier in _CONSTANT_TIERS if names.search(name)), 1) for name in constants]
        return _title(max(tiers)), "by the constants changed"
    return _UNKNOWN, "by nothing"


def _title(tier: int) -> str:
    return f"tier {tier}: {_TIERS[tier]}"


def _tag(series: Series, one: Experiment) -> tuple[str, str]:
    tag = _TAG.search(one.hypothesis)
    if tag is not None:
        return tag[1].strip(), "by the hypothesis"
    constants = list(dict.fromkeys(_CONSTANT.findall(one.hypothesis)))
    if constants:
        return " and ".join(sorted(constants)), "by the constants changed"
    column = series.tags.get(one.number, "")
    return (column, "by the column tag") if column else (_UNKNOWN, "by nothing")
