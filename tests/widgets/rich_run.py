"""A recorded run with everything that a widget can show: stages, failures, findings, samples, comments, a trace."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

from autokernel.experiment import State
from autokernel.journal import Journal
from autokernel.measurement import CaseTiming, Contestant, Measurement, Ratio
from autokernel.runfolder import RunFolder
from autokernel.verdict import CaseResult, Finding, Stage, StageResult, Status, Verdict
from tests.recorded_run import record_run

REASON = "element (3, 5): got nan, expected 0.25, bound 1.2e-6"
HOSTILE_FINDING = "<img src=x onerror=alert(2)>"


def rich_run(folder: Path) -> Path:
    """A run of five experiments: baseline, kept, reverted, wrong, and one that waits for a person."""
    record_run(folder, waiting=True)
    for number, latency in ((0, 400.0), (1, 250.0), (2, 260.0), (4, 200.0)):
        measurement = timed(latency, incumbent=None if number == 0 else 250.0, seed=number)
        write(folder, number, verdict=accepted().to_dict(), measurement=measurement.to_dict())
    write(folder, 3, verdict=rejected().to_dict())
    trace = {
        "messages": [{"role": "system", "content": "<script>alert(3)</script>"}, {"role": "user", "content": "go"}]
    }
    write(folder, 4, trace=trace, comments=["try more lanes"])
    return folder


def write(folder: Path, number: int, **entries: object) -> None:
    path = folder / ".autokernel" / "experiments" / f"{number}.json"
    known = json.loads(path.read_text()) if path.exists() else {"format": 1}
    path.write_text(json.dumps({**known, **entries}))


def accepted() -> Verdict:
    passed = CaseResult(
        label="M=7 N=8 float32", status=Status.PASS, max_error=1e-7, bound=1e-6, error_over_bound=0.1, max_ulp=1.0,
        elements=56, seconds=0.01,
    )  # fmt: skip
    skipped = CaseResult(label="M=7 N=8 bfloat16", status=Status.SKIP, reason="the device has no bfloat16")
    stages = tuple(StageResult(name=name, status=Status.PASS, seconds=0.2, cases=(passed, skipped)) for name in Stage)
    return Verdict(accepted=True, stages=stages, device="CPU", seconds=1.0)


def rejected() -> Verdict:
    passed = StageResult(name=Stage.SMOKE, status=Status.PASS, seconds=0.1)
    bad = CaseResult(label="M=127 N=781 float16", status=Status.FAIL, reason=REASON, mismatched=7, elements=99)
    failed = StageResult(name=Stage.SWEEP, status=Status.FAIL, seconds=0.4, cases=(bad,))
    findings = (Finding("library_call", HOSTILE_FINDING),)
    return Verdict(accepted=False, stages=(passed, failed), findings=findings, device="CPU", seconds=0.5)


def timed(latency: float, incumbent: float | None, seed: int = 0) -> Measurement:
    """A measurement with samples; the floor is 100 us and PyTorch takes 300 us."""
    noise = random.Random(seed)
    medians = {"candidate": latency, "pytorch": 300.0} | ({} if incumbent is None else {"incumbent": incumbent})
    contestants = {
        name: Contestant(
            name=name, latency_us=us, low_us=0.97 * us, high_us=1.05 * us, call_us=us,
            samples_us=(*(us * noise.uniform(0.95, 1.1) for _ in range(30)), 9 * us),
        )
        for name, us in medians.items()
    }  # fmt: skip
    ratios = {
        name: Ratio(us / latency, 0.98 * us / latency, 1.02 * us / latency)
        for name, us in medians.items()
        if name != "candidate"
    }
    case = CaseTiming(
        label="M=64 N=128 float32", weight=1.0, method="wall", contestants=contestants, speedups=ratios,
        floor_us=100.0, tflop_per_s=1.0 / latency, gb_per_s=1000.0 / latency, fraction_of_peak=100.0 / latency,
    )  # fmt: skip
    return Measurement(cases=(case,), speedups=ratios, notes=("the machine was busy",))


def long_run(folder: Path, count: int) -> Path:
    """A run of ``count`` experiments; their journal is real, their commits are those of a few."""
    record_run(folder)
    models = RunFolder(folder).experiments
    lines = []
    for number in range(len(models), count):
        one = dataclasses.replace(models[1 + number % 3], number=number, state=State.DECIDED)
        if one.speedup is not None:
            value = 1.0 + 2.0 * number / count if one.decision == "keep" else 0.9 + 1.9 * number / count
            ratio = Ratio(value, 0.97 * value, 1.04 * value)
            one = dataclasses.replace(one, speedups={"pytorch": ratio, "incumbent": ratio})
        words = f"change {number}: a sentence of the length that agents write about tiles, stages, warps and registers"
        lines.append(one if one.correctness == "FAIL" else dataclasses.replace(one, hypothesis=words))
    journal = folder / ".autokernel" / "journal.jsonl"
    with journal.open("a") as file:
        for one in lines:
            entry = {"kind": "decided", "time": one.timestamp, "number": one.number, "experiment": one.to_dict()}
            file.write(json.dumps(entry) + "\n")
    return folder


def add(folder: Path, **changes: object) -> int:
    """Append one more decided experiment to the journal, as a driving process does; returns its number."""
    last = RunFolder(folder).experiments[-1]
    model = next(one for one in RunFolder(folder).experiments if one.decision == "keep")
    fields = {"number": last.number + 1, "state": State.DECIDED, **changes}
    Journal(folder / ".autokernel" / "journal.jsonl").write("decided", experiment=dataclasses.replace(model, **fields))
    return last.number + 1
