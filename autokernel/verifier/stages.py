"""The five verification stages, run in order, stopping at the first that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from autokernel.ops.spec import Case, KernelSpec, dtype_named
from autokernel.runner.client import Runner, RunnerDied
from autokernel.verdict import CaseResult, Finding, Stage, StageResult, Status, Verdict
from autokernel.verifier import determinism, integrity
from autokernel.verifier.plan import plan
from autokernel.verifier.trial import Trial, dead_case, derived_seed

__all__ = ["Progress", "input_count", "verify"]

Progress = Callable[[dict[str, Any]], None]


def verify(
    runner: Runner,
    source: str,
    spec: KernelSpec,
    *,
    device: str,
    seed: int,
    dtype: str | None = None,
    only: Sequence[Stage] | None = None,
    progress: Progress | None = None,
) -> tuple[Verdict, Trial | None]:
    """Judge a candidate in a fresh runner; also return its trial, unless it could not be loaded.

    Args:
        runner: Where it is executed; still usable for timing if the candidate is accepted.
        source: The text of its kernel.py.
        spec: The operation.
        device: ``cpu`` or ``cuda:0``.
        seed: All inputs follow from it; use a new one for each candidate.
        dtype: The target's dtype, tried first.
        only: Stages to run; all when None.
        progress: Told of each case.
    """
    begin = time.perf_counter()
    tell = progress or (lambda event: None)
    loaded = _load(runner, source, spec)
    if isinstance(loaded, Verdict):
        return loaded, None
    trial = Trial(runner, spec, device, loaded["backend"])
    trial._note(loaded)
    stages: list[StageResult] = []
    for stage, cases in plan(spec, dtype=dtype).items():
        if only is not None and stage not in only:
            continue
        result = _run_stage(trial, stage, cases, seed, tell)
        stages.append(result)
        if stage is Stage.SMOKE and result.status is Status.PASS:
            trial.inspect()
        if result.status not in (Status.PASS, Status.SKIP) or trial.findings:
            break
    for finding in integrity.closing_findings(trial):
        trial.add_finding(finding.kind, finding.evidence)
    passed = all(stage.status in (Status.PASS, Status.SKIP) for stage in stages)
    tested = any(stage.status is Status.PASS for stage in stages)
    verdict = Verdict(
        accepted=passed and tested and not trial.findings,
        stages=tuple(stages),
        findings=tuple(trial.findings.values()),
        seconds=time.perf_counter() - begin,
    )
    return verdict, trial


def _load(runner: Runner, source: str, spec: KernelSpec) -> dict[str, Any] | Verdict:
    names = sorted({name for options in spec.options for name in options})
    request = {"op": "load", "role": "candidate", "source": source, "inputs": input_count(spec), "options": names}
    begin = time.perf_counter()
    try:
        answer = runner.ask(request, seconds=runner.limits.load_seconds, doing="importing kernel.py")
    except RunnerDied as died:
        case = dead_case(Case(shape=spec.shapes[0], dtype=spec.dtypes[0]), died)
        return _unloadable(case.status, f"importing kernel.py: {died}", time.perf_counter() - begin)
    if answer["ok"]:
        return answer
    findings = tuple(Finding(str(kind), str(evidence)) for kind, evidence in answer.get("findings", ()))
    status = Status.FAIL if answer["kind"] == "contract" else Status.CRASH
    return _unloadable(status, answer["error"], time.perf_counter() - begin, findings)


def _unloadable(status: Status, error: str, seconds: float, findings: tuple[Finding, ...] = ()) -> Verdict:
    case = CaseResult(label="import", status=status, reason=error, seconds=seconds)
    stage = StageResult(name=Stage.SMOKE, status=status, seconds=seconds, cases=(case,))
    return Verdict(accepted=False, stages=(stage,), findings=findings, error=error, seconds=seconds)


def input_count(spec: KernelSpec) -> int:
    """How many tensors the operation takes."""
    generator = torch.Generator().manual_seed(0)
    return len(spec.make_inputs(spec.shapes[0], dtype_named(spec.dtypes[0]), generator))


def _run_stage(trial: Trial, stage: Stage, cases: Sequence[Case], seed: int, tell: Progress) -> StageResult:
    begin = time.perf_counter()
    results: list[CaseResult] = []

    def add(result: CaseResult) -> bool:
        results.append(result)
        tell({"stage": stage.value, "case": result.label, "status": result.status.value})
        return result.status in (Status.PASS, Status.SKIP)

    if stage is Stage.DETERMINISM:
        for result in determinism.results(trial, cases, derived_seed(seed, stage.value)):
            if not add(result):
                break
    else:
        for number, case in enumerate(cases):
            case_seed = derived_seed(seed, stage.value, number)
            if not add(trial.judge(case, case_seed, start=4096 * (case_seed % 64), poison=number % 2)):
                break
    bad = next((result.status for result in results if result.status not in (Status.PASS, Status.SKIP)), None)
    tested = any(result.status is Status.PASS for result in results)
    status = bad or (Status.PASS if tested else Status.SKIP)
    return StageResult(name=stage, status=status, seconds=time.perf_counter() - begin, cases=tuple(results))
