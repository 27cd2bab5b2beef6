"""The five verification stages, run in order, stopping at the first that fails."""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any

import torch

from autokernel.ops.spec import Case, KernelSpec, dtype_named
from autokernel.runner.client import Runner, RunnerDied
from autokernel.verdict import CaseResult, Finding, Stage, StageResult, Status, Verdict
from autokernel.verifier import determinism, integrity
from autokernel.verifier.large import judge_large
from autokernel.verifier.plan import plan
from autokernel.verifier.trial import SLOT_BYTES, Trial, derived_seed

__all__ = ["Progress", "load_request", "verify"]

Progress = Callable[[dict[str, Any]], None]


def verify(
    runners: Sequence[Runner],
    source: str,
    spec: KernelSpec,
    *,
    device: str,
    seed: int,
    dtype: str | None = None,
    only: Sequence[Stage] | None = None,
    allow: Collection[str] = (),
    large: bool = False,
    needed: Collection[str] = (),
    timed: Sequence[Case] = (),
    progress: Progress | None = None,
) -> tuple[Verdict, Trial | None]:
    """Judge a candidate in fresh runners; also return its trial, unless it could not be loaded.

    Args:
        runners: Where it is executed.  The cases of a stage are shared out among them, which saves
            compile time; what depends on the order of calls is tried in the first, which is
            still usable for timing if the candidate is accepted.
        source: The text of its kernel.py.
        spec: The operation.
        device: ``cpu`` or ``cuda:0``.
        seed: All inputs follow from it; use a new one for each candidate.
        dtype: The target's dtype, tried first.
        only: Stages to run; all when None.
        allow: Kinds of findings that are reported and do not reject.
        large: Try offsets beyond 2**31 elements at the end of the edge stage.
        needed: Names of the spec's extensions that the target asks for.
        timed: What the candidate will be timed on, which the sweep tries too: a kernel may behave otherwise there.
        progress: Told of each case.
    """
    begin = time.perf_counter()
    tell = progress or (lambda event: None)
    request = load_request(spec, "candidate", source, needed)
    loaded = _load(runners[0], request)
    if isinstance(loaded, Verdict):
        return loaded, None
    shapes = [case.shape for case in timed]
    trial = Trial(runners[0], spec, device, loaded["backend"], timed=shapes)
    trial.note(loaded)
    helpers: list[Trial] = []
    stages: list[StageResult] = []
    for stage, cases in plan(spec, dtype=dtype, seed=derived_seed(seed, "shapes")).items():
        if only is not None and stage not in only:
            continue
        if stage is not Stage.SMOKE and not helpers:
            helpers = _load_helpers(runners[1:], trial, request, shapes)
        if stage is Stage.SWEEP:
            cases = list({case.label: case for case in (*cases, *timed)}.values())
        cases = [case for case in cases if not case.options.keys() & set(loaded["lacks"])]
        outcomes = _results([trial, *helpers], stage, cases, seed)
        if stage is Stage.SWEEP:
            outcomes = _then_left_out(outcomes, spec, loaded["lacks"])
        if large and stage is Stage.EDGE:
            forms = [{}, *[one for one in spec.extensions if not one.keys() & set(loaded["lacks"])]]
            outcomes = _then_large(outcomes, trial, dtype or spec.dtypes[0], derived_seed(seed, "large"), forms)
        result = _run_stage(outcomes, stage, tell, begin + runners[0].limits.total_seconds, runners[0])
        stages.append(result)
        for helper in helpers:
            trial.absorb(helper)
        # A kernel that leans on PyTorch may be wrong as well, and then its values name the better reason.
        if result.status not in (Status.PASS, Status.SKIP) or _blocking(trial, (*allow, "library_call")):
            break
    for finding in integrity.closing_findings(trial):
        trial.add_finding(finding.kind, finding.evidence)
    passed = all(stage.status in (Status.PASS, Status.SKIP) for stage in stages)
    tested = any(stage.status is Status.PASS for stage in stages)
    verdict = Verdict(
        accepted=passed and tested and not _blocking(trial, allow),
        stages=tuple(stages),
        findings=tuple(trial.findings.values()),
        seconds=time.perf_counter() - begin,
    )
    return verdict, trial


def _blocking(trial: Trial, allow: Collection[str]) -> bool:
    return any(finding.kind not in allow for finding in trial.findings.values())


def _load(runner: Runner, request: dict[str, Any]) -> dict[str, Any] | Verdict:
    begin = time.perf_counter()
    try:
        answer = runner.ask(request, seconds=runner.limits.load_seconds, doing="importing kernel.py")
    except RunnerDied as died:
        status = Status.TIMEOUT if died.timed_out else Status.CRASH
        findings = tuple(integrity.floods(runner))
        return _unloadable(status, str(died), time.perf_counter() - begin, findings)
    if answer["ok"]:
        return answer
    found = (Finding(str(kind), str(evidence)) for kind, evidence in answer.get("findings", ()))
    findings = (*found, *integrity.floods(runner))
    status = Status.FAIL if answer["kind"] == "contract" else Status.CRASH
    return _unloadable(status, answer["error"], time.perf_counter() - begin, findings)


def _unloadable(status: Status, error: str, seconds: float, findings: tuple[Finding, ...] = ()) -> Verdict:
    case = CaseResult(label="import", status=status, reason=error, seconds=seconds)
    stage = StageResult(name=Stage.SMOKE, status=status, seconds=seconds, cases=(case,))
    return Verdict(accepted=False, stages=(stage,), findings=findings, error=error, seconds=seconds)


def load_request(spec: KernelSpec, role: str, source: str, needed: Collection[str] = ()) -> dict[str, Any]:
    """What a runner is asked, to load the text of a kernel.py under a role, for a target that needs some extensions."""
    generator = torch.Generator().manual_seed(0)
    inputs = spec.make_inputs(spec.shapes[0], dtype_named(spec.dtypes[0]), generator)
    required, optional = spec.option_names(needed)
    return {
        "op": "load",
        "role": role,
        "source": source,
        "inputs": len(inputs),
        "options": required,
        "optional": optional,
    }


def _load_helpers(
    runners: Sequence[Runner], trial: Trial, request: dict[str, Any], timed: Sequence[Mapping[str, int]]
) -> list[Trial]:
    """Load the candidate, which has passed the smoke stage, into further runners."""
    helpers = []
    with concurrent.futures.ThreadPoolExecutor(max(1, len(runners))) as pool:
        for runner, loaded in zip(runners, pool.map(lambda one: _load(one, request), runners), strict=True):
            if isinstance(loaded, Verdict):
                trial.add_finding("unreliable_import", f"it was imported once, and then not: {loaded.error}")
            else:
                helpers.append(Trial(runner, trial.spec, trial.device, loaded["backend"], timed=timed))
    return helpers


def _results(
    trials: Sequence[Trial], stage: Stage, cases: Sequence[Case], seed: int
) -> Generator[CaseResult, None, None]:
    if stage is Stage.DETERMINISM:
        return determinism.results(trials[0], cases, derived_seed(seed, stage.value))
    return _case_results(trials, stage, cases, seed)


def _then_left_out(
    source: Generator[CaseResult, None, None], spec: KernelSpec, lacks: Collection[str]
) -> Generator[CaseResult, None, None]:
    """Say which forms of the operation were not tried, because ``kernel_fn`` does not take their options."""
    with contextlib.closing(source):
        yield from source
    for extension in spec.extensions:
        missing = [name for name in extension if name in lacks]
        if missing:
            label = " ".join(f"{name}={value}" for name, value in extension.items())
            reason = f"kernel_fn takes no {' and no '.join(missing)}, and is judged for the default alone"
            yield CaseResult(label=label, status=Status.SKIP, reason=reason)


def _then_large(
    source: Generator[CaseResult, None, None],
    trial: Trial,
    dtype: str,
    seed: int,
    forms: Sequence[Mapping[str, Any]],
) -> Generator[CaseResult, None, None]:
    with contextlib.closing(source):
        yield from source
    for options in forms:
        yield judge_large(trial, dtype, seed, options=options)


def _run_stage(
    source: Generator[CaseResult, None, None], stage: Stage, tell: Progress, until: float, runner: Runner
) -> StageResult:
    begin = time.perf_counter()
    results: list[CaseResult] = []
    with contextlib.closing(source):
        for result in source:
            results.append(result)
            tell({"stage": stage.value, "case": result.label, "status": result.status.value})
            if result.status not in (Status.PASS, Status.SKIP):
                break
            if time.perf_counter() > until:
                total = runner.limits.total_seconds
                reason = f"the verification took more than {total:g} s; make calls or compilation faster"
                results.append(CaseResult(label=f"after {result.label}", status=Status.TIMEOUT, reason=reason))
                break
    bad = next((result.status for result in results if result.status not in (Status.PASS, Status.SKIP)), None)
    tested = any(result.status is Status.PASS for result in results)
    status = bad or (Status.PASS if tested else Status.SKIP)
    return StageResult(name=stage, status=status, seconds=time.perf_counter() - begin, cases=tuple(results))


def _case_results(
    trials: Sequence[Trial], stage: Stage, cases: Sequence[Case], seed: int
) -> Generator[CaseResult, None, None]:
    """Yield the results in the order of the cases, whichever runner they come from."""
    idle: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    for trial in trials:
        idle.put(trial)

    def judge(number: int) -> CaseResult:
        trial = idle.get()
        try:
            case_seed = derived_seed(seed, stage.value, number)
            return trial.judge(cases[number], case_seed, start=SLOT_BYTES * (number % 3), poison=number % 2)
        finally:
            idle.put(trial)

    if len(trials) == 1:
        yield from map(judge, range(len(cases)))
        return
    pool = concurrent.futures.ThreadPoolExecutor(len(trials))
    try:
        yield from pool.map(judge, range(len(cases)))
    finally:
        pool.shutdown(cancel_futures=True)
