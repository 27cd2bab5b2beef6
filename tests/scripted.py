"""A judge that goes by what a kernel's text says, for tests of the loop; no candidate is run.

``SPEED = 1.3`` means 1.3 times PyTorch's speed; ``WRONG = True`` fails verification.
"""

from __future__ import annotations

import dataclasses
import re
import threading
import time

from autokernel.measurement import CaseTiming, Contestant, Measurement, Ratio
from autokernel.verdict import CaseResult, Stage, StageResult, Status, Verdict

PYTORCH_US = 100.0


@dataclasses.dataclass(frozen=True)
class Evaluation:
    verdict: Verdict
    measurement: Measurement | None = None
    confirmation: Measurement | None = None
    seconds: float = 0.01


def kernel(speed: float = 1.0, *, wrong: bool = False, extra: str = "") -> str:
    """The text of a kernel that `ScriptedEvaluator` judges by its constants."""
    return (
        f'KERNEL_TYPE = "rmsnorm"\nBACKEND = "cpp"\nSPEED = {speed}\nWRONG = {wrong}\n{extra}\n'
        "def kernel_fn(x, weight, eps=1e-6):\n    return x\n"
    )


def number(source: str, name: str, default: float) -> float:
    found = re.search(rf"^{name} = ([0-9.]+)", source, re.MULTILINE)
    return float(found.group(1)) if found else default


def verdict_of(*, accepted: bool, status: Status = Status.FAIL, reason: str = "got 1, expected 2") -> Verdict:
    case = CaseResult(label="M=7 N=8 float32", status=Status.PASS if accepted else status, reason=reason)
    stage = StageResult(name=Stage.SMOKE, status=case.status, seconds=0.01, cases=(case,))
    return Verdict(accepted=accepted, stages=(stage,), device="scripted", seconds=0.01)


def measurement_of(
    latency_us: float, incumbent_us: float | None = None, *, spread: float = 0.002, **fields
) -> Measurement:
    times = {"candidate": latency_us, "pytorch": PYTORCH_US}
    if incumbent_us is not None:
        times["incumbent"] = incumbent_us
    ratios = {
        name: Ratio(us / latency_us, us / latency_us * (1 - spread), us / latency_us * (1 + spread))
        for name, us in times.items()
        if name != "candidate"
    }
    contestants = {
        name: Contestant(name=name, latency_us=us, low_us=us, high_us=us, call_us=us, samples_us=(us, us))
        for name, us in times.items()
    }
    case = CaseTiming(
        label="M=1024 N=4096 float32", weight=1.0, method="wall", contestants=contestants, speedups=ratios,
        floor_us=10.0, tflop_per_s=0.1, gb_per_s=20.0, fraction_of_peak=10.0 / latency_us,
    )  # fmt: skip
    worst = (case.label, ratios["incumbent"]) if "incumbent" in ratios else None
    return Measurement(**{"cases": (case,), "speedups": ratios, "worst_case": worst, "peak_memory_mb": 1.0, **fields})


class ScriptedEvaluator:
    """Deterministic; counts its calls, may be slow, and may be told to fail itself."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.judged: list[str] = []
        self.prestarts = 0
        self.closed = threading.Event()

    def prestart(self) -> None:
        self.prestarts += 1

    def close(self) -> None:
        self.closed.set()

    def evaluate(
        self, source: str, *, incumbent: str | None = None, seed: int | None = None, compiled: bool = False
    ) -> Evaluation:
        self.judged.append(source)
        if self.seconds:
            self.closed.wait(self.seconds)
        if self.error is not None:
            raise self.error
        if "WRONG = True" in source:
            return Evaluation(verdict_of(accepted=False))
        us = PYTORCH_US / number(source, "SPEED", 1.0)
        best_us = None if incumbent is None else PYTORCH_US / number(incumbent, "SPEED", 1.0)
        measurement = measurement_of(us, best_us)
        return Evaluation(verdict_of(accepted=True), measurement, measurement if incumbent else None)


class ScriptedAgent:
    """Proposes a list of kernels in order, by the number of experiments made, so that it survives a restart."""

    name = "scripted"

    def __init__(self, sources: list[str], seconds: float = 0.0) -> None:
        self.sources = sources
        self.seconds = seconds
        self.contexts: list = []

    async def propose(self, context):
        import asyncio

        from autokernel.agents import Exhausted, Proposal

        self.contexts.append(context)
        await asyncio.sleep(self.seconds)
        made = sum(1 for one in context.experiments if one.agent == self.name)
        if made >= len(self.sources):
            raise Exhausted("the script is over")
        return Proposal(
            source=self.sources[made], hypothesis=f"script line {made + 1}", tokens=10, trace={"line": made}
        )


def wait_for(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
