"""A run folder as a session leaves it: real git, real journal, no judging; for tests of those who only watch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autokernel.experiment import Experiment, State, to_row
from autokernel.history import History
from autokernel.journal import Journal, Records
from autokernel.measurement import CaseTiming, Contestant, Measurement, Ratio
from autokernel.results import ResultsFile
from autokernel.runfolder import Paths
from autokernel.target import Target, Timing
from autokernel.verdict import CaseResult, Stage, StageResult, Status, Verdict

HOSTILE = "<script>alert(1)</script> [bold]LANES[/bold] \x1b[31m1 -> 8\x1b[0m"
SOURCE = 'KERNEL_TYPE = "rmsnorm"\nBACKEND = "cpp"\n\nLANES = 1  # independent partial sums\n'
REASON = "element (3, 5): got nan, expected 0.25"

OUTCOMES = (  # decision, correctness, speedup over PyTorch, hypothesis
    ("baseline", "PASS", 0.8, "starter"),
    ("keep", "PASS", 1.3, "LANES 1 -> 8"),
    ("revert", "PASS", 1.2, HOSTILE),
    ("revert", "FAIL", None, "LANES 8 -> 16"),
)


def record_run(folder: Path, *, waiting: bool = False) -> Path:
    """Write a run of four experiments (five with one that waits for a person) and return its folder."""
    folder.mkdir(parents=True)
    paths = Paths(folder)
    paths.records.mkdir(parents=True)
    target = Target(
        reference="rmsnorm", operation="rmsnorm", tag=folder.name, backend="cpp", device="cpu", dtype="float32",
        timing=(Timing(shape={"M": 64, "N": 128}),),
    )  # fmt: skip
    source = SOURCE
    tracked = {"kernel.py": source, "target.toml": target.to_toml()}
    history, _ = History.create(folder, target.branch, tracked, "Start")
    journal, records = Journal(paths.journal), Records(paths.records)
    results = ResultsFile(paths.results, paths.aside)
    best = history.head()
    for number, (decision, correctness, speedup, hypothesis) in enumerate(OUTCOMES):
        commit = best if number == 0 else history.commit(_variant(source, number), best, hypothesis)
        experiment = _experiment(
            number, decision, correctness, speedup, hypothesis, commit, "" if number == 0 else best
        )
        records.write(number, _record(experiment))
        journal.write("decided", experiment=experiment)
        results.append(to_row(experiment, tag=target.tag, operation="rmsnorm", backend="cpp", dtype="float32"))
        best = commit if decision == "keep" else best
    if waiting:
        commit = history.commit(_variant(source, len(OUTCOMES)), best, "waits")
        experiment = _experiment(len(OUTCOMES), "", "PASS", 1.5, "LANES 8 -> 32", commit, best)
        journal.write("judged", experiment=dataclasses.replace(experiment, state=State.WAITING))
    return folder


def _variant(source: str, number: int) -> str:
    return source.replace("LANES = 1 ", f"LANES = {2**number} ")


def _experiment(number, decision, correctness, speedup, hypothesis, commit, parent):
    ratio = None if speedup is None else Ratio(speedup, speedup - 0.01, speedup + 0.01)
    return Experiment(
        number=number, state=State.DECIDED, hypothesis=hypothesis, agent="search", commit=commit, parent=parent,
        decision=decision, decided_by="policy", correctness=correctness, reason=REASON if speedup is None else "timed",
        speedups={} if ratio is None else {"pytorch": ratio, "incumbent": ratio},
        latency_us=None if speedup is None else 100 / speedup, seconds=1.0, timestamp="2026-01-01T00:00:00Z",
    )  # fmt: skip


def _record(experiment: Experiment) -> dict[str, object]:
    passed = experiment.passed
    case = CaseResult(
        label="M=7 N=8 float32", status=Status.PASS if passed else Status.FAIL, reason="" if passed else REASON,
        max_error=1e-7, bound=1e-6, error_over_bound=0.1, max_ulp=1.0, elements=56, seconds=0.01,
    )  # fmt: skip
    stage = StageResult(name=Stage.SMOKE, status=case.status, seconds=0.02, cases=(case,))
    verdict = Verdict(accepted=passed, stages=(stage,), device="CPU", seconds=0.1)
    measurement = _measurement(experiment) if experiment.speedup else None
    return {
        "experiment": experiment.number,
        "verdict": verdict.to_dict(),
        "measurement": measurement.to_dict() if measurement else None,
    }


def _measurement(experiment: Experiment) -> Measurement:
    latency_us = experiment.latency_us or 0.0
    contestants = {
        name: Contestant(name=name, latency_us=time_us, low_us=time_us, high_us=time_us, call_us=time_us)
        for name, time_us in (("candidate", latency_us), ("pytorch", 100.0))
    }
    case = CaseTiming(
        label="M=64 N=128 float32", weight=1.0, method="wall", contestants=contestants, speedups=experiment.speedups
    )
    return Measurement(cases=(case,), speedups=experiment.speedups)
