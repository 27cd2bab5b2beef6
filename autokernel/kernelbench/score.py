"""fast_p: the share of problems with a right kernel that is more than p times as fast, per level.

A kernel counts if all five verification stages accepted it and it does its own work: the problem's own model
under another name, or a candidate that leaves the work to PyTorch, does not.  Of several the fastest counts.

Source: A. Ouyang et al., KernelBench: Can LLMs Write Efficient GPU Kernels?, 2025, section 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from autokernel.experiment import Experiment
from autokernel.kernelbench.collection import Collection, Entry
from autokernel.kernelbench.judging import DELEGATION
from autokernel.measurement import Ratio
from autokernel.runfolder import RunFolder

__all__ = ["THRESHOLDS", "Level", "ProblemScore", "Score", "level_of", "score"]

THRESHOLDS = (0.0, 1.0, 1.5, 2.0, 3.0, 5.0)
RIVALS = ("pytorch", "compile")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemScore:
    """How one problem stands.

    Attributes:
        name: The problem.
        level: Its level.
        refused: Why it cannot be judged, or "".
        notes: What a reader must know about how it is judged.
        candidates: How many candidates were judged, the baseline left out.
        right: How many of them were accepted.
        best: Number of the fastest accepted one, or None.
        speedups: Its speedups over ``pytorch`` and ``compile``, as far as they were measured.
        deceived: Candidates that the benchmark's own check takes for right and the verification does not: number and
            reason of the rejection.
        severe: Candidates that were accepted and that the benchmark's own check refuses: number and its reason.
    """

    name: str
    level: int
    refused: str = ""
    notes: tuple[str, ...] = ()
    candidates: int = 0
    right: int = 0
    best: int | None = None
    speedups: dict[str, Ratio] = dataclasses.field(default_factory=dict)
    deceived: tuple[tuple[int, str], ...] = ()
    severe: tuple[tuple[int, str], ...] = ()

    @property
    def state(self) -> str:
        """``refused``, ``not begun``, ``right`` or ``wrong`` (no candidate was accepted)."""
        if self.refused:
            return "refused"
        return "not begun" if not self.candidates else "right" if self.best is not None else "wrong"


@dataclasses.dataclass(frozen=True)
class Level:
    """fast_p of a level, or of all problems.

    Attributes:
        name: ``level 1``, or ``all``.
        problems: How many can be judged; they are the denominator.
        refused: How many cannot.
        fast: For each rival and each threshold the share of problems, 0 to 1; without a rival that was timed nowhere.
    """

    name: str
    problems: int
    refused: int
    fast: dict[str, dict[float, float]]


@dataclasses.dataclass(frozen=True)
class Score:
    """The score of a collection."""

    problems: tuple[ProblemScore, ...]
    levels: tuple[Level, ...]

    def to_dict(self) -> dict[str, Any]:
        """The score as JSON-ready data."""
        problems = [{**dataclasses.asdict(one), "state": one.state} for one in self.problems]
        levels = []
        for one in self.levels:
            fast = {rival: {f"{p:g}": share for p, share in shares.items()} for rival, shares in one.fast.items()}
            levels.append({**dataclasses.asdict(one), "fast": fast})
        return {"levels": levels, "problems": problems}


def score(collection: Collection, entries: Sequence[Entry]) -> Score:
    """Score the problems of a collection as they stand."""
    problems = tuple(_problem(collection, entry) for entry in entries)
    groups = {f"level {level}": [one for one in problems if one.level == level] for level in _levels(problems)}
    if len(groups) > 1:
        groups["all"] = list(problems)
    return Score(problems, tuple(level_of(name, group) for name, group in groups.items()))


def _levels(problems: Sequence[ProblemScore]) -> list[int]:
    return sorted({one.level for one in problems})


def _problem(collection: Collection, entry: Entry) -> ProblemScore:
    if entry.facts is None:
        return ProblemScore(name=entry.name, level=entry.level, refused=entry.refused)
    run = collection.run(entry.name)
    done = [one for one in run.experiments if one.number and one.decision]
    right = [one for one in done if one.passed and (collection.settings.library or not _delegates(one))]
    best = max(right, key=lambda one: one.speedup.value if one.speedup else 0.0, default=None)
    checks = collection.checks(entry.name)
    accepted = {one.number for one in right}
    content = {number: said["content"] for number, said in checks.items()}
    fooled = [one for one in done if one.number not in accepted and content.get(one.number)]
    severe = [one for one in done if one.number in accepted and content.get(one.number) is False]
    return ProblemScore(
        name=entry.name,
        level=entry.level,
        notes=tuple(entry.facts.notes),
        candidates=len(done),
        right=len(right),
        best=None if best is None else best.number,
        speedups={} if best is None else _speedups(run, best),
        deceived=tuple((one.number, one.reason) for one in fooled),
        severe=tuple((one.number, checks[one.number]["reason"]) for one in severe),
    )


def _speedups(run: RunFolder, best: Experiment) -> dict[str, Ratio]:
    """Over each rival; a confirmation does not time ``torch.compile``, so that ratio is of the first measurement."""
    first = run.judgement(best.number)[1]
    known = {**(first.speedups if first else {}), **best.speedups}
    return {name: known[name] for name in RIVALS if name in known}


def _delegates(experiment: Experiment) -> bool:
    return any(kind in DELEGATION for kind in experiment.findings)


def level_of(name: str, problems: Sequence[ProblemScore]) -> Level:
    """fast_p of some problems."""
    judged = [one for one in problems if not one.refused]
    timed = [rival for rival in RIVALS if rival == "pytorch" or any(rival in one.speedups for one in judged)]
    fast = {
        rival: {p: _share(sum(_is_fast(one, rival, p) for one in judged), len(judged)) for p in THRESHOLDS}
        for rival in timed
    }
    return Level(name, len(judged), len(problems) - len(judged), fast)


def _is_fast(problem: ProblemScore, rival: str, threshold: float) -> bool:
    """At a threshold of 0 a right kernel counts whether or not it was timed (a Triton kernel on a CPU is not)."""
    if problem.best is None or threshold == 0:
        return problem.best is not None
    return rival in problem.speedups and problem.speedups[rival].value > threshold


def _share(count: int, total: int) -> float:
    return count / total if total else 0.0
