"""What a run knows about its experiments: plain data, small enough to keep for every one of them.

The full record of an experiment (stages, samples, the agent's exchange) is a file of its own; an
`Experiment` is its summary.  Figures come from the confirming measurement when there is one,
because the measurement that made a candidate a winner flatters it.

Units: microseconds, TFLOP/s, MB (10^6 bytes), seconds.  A ratio above 1 means faster.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel.measurement import Measurement, Ratio
from autokernel.results import Row
from autokernel.verdict import Verdict

__all__ = ["Experiment", "RunStatus", "State", "Summary", "Tally", "best_of", "decided", "figures", "tally", "to_row"]


class State(str, enum.Enum):
    """How far an experiment has come."""

    PROPOSED = "proposed"
    WAITING = "waiting"
    DECIDED = "decided"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One turn of the loop, in short.

    Attributes:
        number: 0 is the baseline.
        state: ``proposed`` (committed, not judged), ``waiting`` (for a person) or ``decided``.
        hypothesis: What the agent expected of the change.
        agent: Who proposed it.
        commit: The commit that holds the kernel; the final one once it is decided.
        parent: The commit of the best kernel when it was proposed; "" for the baseline.
        blob: Git's hash of the kernel's text; equal texts have equal blobs.
        decision: ``baseline``, ``keep`` or ``revert``; "" until it is decided.
        advice: What the policy says: ``keep`` or ``revert``; a person may have decided otherwise.
        reason: Why, in a sentence.
        decided_by: ``policy`` or ``person``.
        correctness: PASS, FAIL, TIMEOUT or CRASH; "" until it is judged.
        failed_stage: Name of the first verification stage that failed, or "".
        findings: Kinds of the integrity findings.
        untested: How many cases could not be tested.
        latency_us: Of the candidate, on the first timing case.
        tflop_per_s: The same.
        fraction_of_peak: Roofline floor over latency, the same.
        speedups: Over ``pytorch``, ``incumbent`` (the best at that time) and ``compile``.
        peak_memory_mb: Most memory that a call held beyond its inputs.
        tokens: Language-model tokens that the proposal took, or None.
        think_seconds: What the agent took.
        seconds: From the proposal to the verdict.
        worker: Which worker and device judged it, in words; "" for the process that drives the run.
        timestamp: When it was last changed, UTC.
    """

    number: int
    state: State = State.PROPOSED
    hypothesis: str = ""
    agent: str = ""
    commit: str = ""
    parent: str = ""
    blob: str = ""
    decision: str = ""
    advice: str = ""
    reason: str = ""
    decided_by: str = ""
    correctness: str = ""
    failed_stage: str = ""
    findings: tuple[str, ...] = ()
    untested: int = 0
    latency_us: float | None = None
    tflop_per_s: float | None = None
    fraction_of_peak: float | None = None
    speedups: Mapping[str, Ratio] = dataclasses.field(default_factory=dict)
    peak_memory_mb: float | None = None
    tokens: int | None = None
    think_seconds: float = 0.0
    seconds: float = 0.0
    worker: str = ""
    timestamp: str = ""

    @property
    def passed(self) -> bool:
        """True if verification accepted it."""
        return self.correctness == "PASS"

    @property
    def speedup(self) -> Ratio | None:
        """Over what PyTorch users run today, or None if it was not measured."""
        return self.speedups.get("pytorch")

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON-ready data."""
        speedups = {name: dataclasses.asdict(ratio) for name, ratio in self.speedups.items()}
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "state": self.state.value, "findings": list(self.findings), "speedups": speedups}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Experiment:
        """Read back what `to_dict` made; fields of a later version are passed over."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["state"] = State(values.get("state", "proposed"))
        values["findings"] = tuple(values.get("findings", ()))
        values["speedups"] = {name: Ratio(**ratio) for name, ratio in values.get("speedups", {}).items()}
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class Tally:
    """How many experiments, the baseline left out.

    Attributes:
        total: All that are decided.
        kept: Faster, verified, on the branch.
        reverted: Right, but not kept.
        rejected: Failed verification.
    """

    total: int
    kept: int
    reverted: int
    rejected: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        path: The run folder.
        operation, backend, dtype, device, branch, agent, approval: As in target.toml.
        state: ``idle`` (nobody drives it), ``running``, ``paused`` or ``waiting`` (for a person).
        driver: Who drives it (``pid``, ``host``, ``since``), or None.
        tally: Counts.
        best: The kernel on the branch, or None before the baseline is judged.
        current: The experiment that is being judged or waits, or None.
        seconds_per_experiment: Mean over the decided experiments, or None.
        notes: What a person should know: edits set aside, the git identity that is used.
    """

    path: Path
    operation: str
    backend: str
    dtype: str
    device: str
    branch: str
    agent: str
    approval: str
    state: str
    driver: Mapping[str, Any] | None
    tally: Tally
    best: Experiment | None
    current: Experiment | None
    seconds_per_experiment: float | None
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> Ratio | None:
        """Of the best kernel over PyTorch, with its interval."""
        return self.best.speedup if self.best else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """What one call of `Session.run` did.

    Attributes:
        tally: Of the experiments of this call.
        best: The best kernel of the whole run.
        stopped: Why it ended, in a sentence.
        cause: The same in a word: ``experiments``, ``minutes``, ``plateau``, ``near_peak``,
            ``exhausted`` (the agent has nothing more to try) or ``asked`` (by a person).
        seconds: What the call took.
        seconds_per_experiment: Mean over the experiments of this call, or None.
        results: Path of results.tsv.
    """

    tally: Tally
    best: Experiment | None
    stopped: str
    cause: str
    seconds: float
    seconds_per_experiment: float | None
    results: Path

    @property
    def speedup(self) -> Ratio | None:
        """Of the best kernel over PyTorch, with its interval."""
        return self.best.speedup if self.best else None


def figures(verdict: Verdict, measurement: Measurement | None) -> dict[str, Any]:
    """The fields of an `Experiment` that follow from its judgement."""
    values: dict[str, Any] = {
        "correctness": verdict.correctness,
        "failed_stage": verdict.failed_stage.value if verdict.failed_stage else "",
        "findings": tuple(finding.kind for finding in verdict.findings),
        "untested": len(verdict.skipped),
        "worker": str(verdict.details.get("worker", "")),
    }
    if measurement is not None:
        first = measurement.cases[0]
        values |= {
            "latency_us": measurement.latency_us,
            "tflop_per_s": first.tflop_per_s,
            "fraction_of_peak": first.fraction_of_peak,
            "speedups": dict(measurement.speedups),
            "peak_memory_mb": measurement.peak_memory_mb,
        }
    return values


def best_of(experiments: Sequence[Experiment]) -> Experiment | None:
    """The last that was kept (the baseline, until one is), or None."""
    stays = [experiment for experiment in experiments if experiment.decision in ("keep", "baseline")]
    return stays[-1] if stays else None


def decided(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The decided experiments, the baseline left out."""
    return [experiment for experiment in experiments if experiment.decision in ("keep", "revert")]


def tally(experiments: Sequence[Experiment]) -> Tally:
    """Count the decided experiments; the baseline and those that wait are left out."""
    done = decided(experiments)
    kept = sum(experiment.decision == "keep" for experiment in done)
    rejected = sum(not experiment.passed for experiment in done)
    return Tally(total=len(done), kept=kept, reverted=len(done) - kept - rejected, rejected=rejected)


def to_row(experiment: Experiment, *, tag: str, operation: str, backend: str, dtype: str) -> Row:
    """The experiment's row of results.tsv."""
    over_best = experiment.speedups.get("incumbent")
    compiled = experiment.speedups.get("compile")
    fraction = experiment.fraction_of_peak
    return Row(
        experiment=experiment.number,
        tag=tag,
        kernel_type=operation,
        throughput_tflops=experiment.tflop_per_s,
        latency_us=experiment.latency_us,
        pct_peak=None if fraction is None else 100 * fraction,
        speedup_vs_pytorch=experiment.speedup.value if experiment.speedup else None,
        correctness=experiment.correctness,
        peak_vram_mb=experiment.peak_memory_mb,
        description=experiment.hypothesis,
        decision=experiment.decision,
        backend=backend,
        dtype=dtype,
        speedup_vs_best=over_best.value if over_best else None,
        ci_low=over_best.low if over_best else None,
        ci_high=over_best.high if over_best else None,
        speedup_vs_compile=compiled.value if compiled else None,
        agent=experiment.agent,
        tokens=experiment.tokens,
        seconds=experiment.seconds,
        worker=experiment.worker,
        commit=experiment.commit[:12],
        timestamp=experiment.timestamp,
    )
