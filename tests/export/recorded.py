"""Runs whose one kernel was kept, written as a session writes them, without judging; and packages loaded from disk."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from autokernel.experiment import Experiment, State, to_row
from autokernel.history import History, blob_id
from autokernel.journal import Journal, Records
from autokernel.measurement import CaseTiming, Contestant, Measurement, Ratio
from autokernel.results import ResultsFile
from autokernel.runfolder import Paths
from autokernel.target import Target, Timing
from autokernel.verdict import CaseResult, Stage, StageResult, Status, Verdict

CPU = "Test CPU (x86_64, 2 cores, 4 GiB)"


def record(
    folder: Path,
    source: str,
    *,
    operation: str,
    backend: str,
    passed: Sequence[str],
    reference: str = "",
    device: str = "cpu",
    device_name: str = CPU,
    skipped: Sequence[str] = (),
    timed: str = "",
    decision: str = "baseline",
    accepted: bool = True,
) -> Path:
    """Write a run of one experiment and return its folder.

    Args:
        folder: New.
        source: The kernel.
        passed: Labels of the cases that passed.
        skipped: Labels of those that could not be tested.
        timed: Label of the timing case; none if "".
        decision: ``baseline``, ``keep`` or ``revert``; "" if it waits for a person.
        accepted: Whether it was verified.
    """
    folder.mkdir(parents=True)
    paths = Paths(folder)
    paths.records.mkdir(parents=True)
    target = Target(
        reference=reference or operation, operation=operation, tag=folder.name, backend=backend, device=device,
        dtype="float32", timing=(Timing(shape={"M": 7, "N": 8}),),
    )  # fmt: skip
    history, _ = History.create(folder, target.branch, {"kernel.py": source, "target.toml": target.to_toml()}, "Start")
    status = Status.PASS if accepted else Status.FAIL
    cases = [CaseResult(label=label, status=status) for label in passed]
    cases += [CaseResult(label=label, status=Status.SKIP, reason="too large | here") for label in skipped]
    verdict = Verdict(
        accepted=accepted, stages=(StageResult(name=Stage.SMOKE, status=status, cases=tuple(cases)),),
        device=device_name, details={"harness": "0123456789abcdef", "torch": "2.13.0"},
    )  # fmt: skip
    measurement = _measurement(timed) if timed else None
    experiment = Experiment(
        number=0, state=State.DECIDED if decision else State.WAITING, agent="search", commit=history.head(),
        blob=blob_id(source), decision=decision, reason="not faster", correctness="PASS" if accepted else "FAIL",
        timestamp="2026-01-01T00:00:00Z",
    )  # fmt: skip
    Records(paths.records).write(
        0, {"verdict": verdict.to_dict(), "measurement": measurement.to_dict() if measurement else None}
    )
    Journal(paths.journal).write("decided" if decision else "judged", experiment=experiment)
    row = to_row(experiment, tag=target.tag, operation=operation, backend=backend, dtype="float32")
    ResultsFile(paths.results, paths.aside).append(row)
    return folder


def _measurement(label: str) -> Measurement:
    speedups = {"pytorch": Ratio(2.0, 1.75, 2.25)}
    contestants = {
        name: Contestant(name=name, latency_us=time_us, low_us=time_us - 1, high_us=time_us + 1, call_us=time_us)
        for name, time_us in (("candidate", 50.0), ("pytorch", 100.0))
    }
    case = CaseTiming(label=label, weight=1.0, method="wall", contestants=contestants, speedups=speedups)
    return Measurement(cases=(case,), speedups=speedups)


def load(project: Path, package: str) -> ModuleType:
    """Import a package of an exported project that is not installed; ``package`` must not have been imported before."""
    sys.path.insert(0, str(project))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(package)
    finally:
        sys.path.remove(str(project))
