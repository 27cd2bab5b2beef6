"""The determinism stage: the same answer each time, and never an old one.

Three runs on equal inputs must agree bit by bit, though fresh memory holds other garbage and the
inputs lie elsewhere.  Then the inputs change *in place* between calls, often only in part, and every
answer must be the right one for what the inputs hold now: a kernel that remembers results by
identity, by address, by a fingerprint of the content or by the number of calls gives an old answer
sooner or later.  An output that was handed out must not change when the kernel is called again.
Last come many calls in a row, which show a late drift, a rare race and a slow leak.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import time
from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from autokernel.ops.spec import Case
from autokernel.runner.client import RunnerDied
from autokernel.runner.protocol import ARENA_BYTES
from autokernel.verdict import CaseResult, Status
from autokernel.verifier import golden as golden_module
from autokernel.verifier.trial import SLOT_BYTES, Call, Trial, dead_case, derived_seed, make_case_inputs

__all__ = ["results"]

RUNS = 3
CHURN_CALLS = 18
ENDURANCE_CALLS = 3000
_ENDURANCE_SECONDS = 0.4
_LONG_SECONDS = 0.15
_LONG_FLOPS = 1e9
_RECALL_SECONDS = 0.2
_LEAK_BYTES = 32 << 20


def results(trial: Trial, cases: Sequence[Case], seed: int) -> Generator[CaseResult, None, None]:
    """Yield the stage's results, one at a time."""
    for number, case in enumerate(cases):
        reason = trial.not_testable(case)
        if reason:
            yield CaseResult(label=case.label, status=Status.SKIP, reason=reason)
        else:
            yield _timed(case, trial, _repeat, derived_seed(seed, "repeat", number), "three runs")
    known = Case(shape=trial.spec.shapes[0], dtype=cases[0].dtype)  # to the kernel, since its first call
    forms = {repr(case.options): dataclasses.replace(known, options=case.options) for case in cases}
    for number, smoke in enumerate(forms.values()):
        yield _timed(smoke, trial, _churn, derived_seed(seed, "churn", number), "changing inputs")
        yield _timed(smoke, trial, _endure, derived_seed(seed, "endure", number), "many calls")
    long = _longest(trial, cases[0].dtype)
    if long is not None:  # where threads or programs share a row, their order shows
        check = functools.partial(_endure, seconds=_LONG_SECONDS)
        yield _timed(long, trial, check, derived_seed(seed, "long"), "some calls")


def _longest(trial: Trial, dtype: str) -> Case | None:
    """The case with the longest rows, or None where a few calls of it take too long."""
    spec = trial.spec
    shape = max(spec.large_shapes, key=spec.terms, default=None)
    if shape is None or (trial.device == "cpu" and spec.flops is not None and spec.flops(shape) > _LONG_FLOPS):
        return None
    case = Case(shape=shape, dtype=dtype)
    return None if trial.not_testable(case) else case


_Check = Callable[[Trial, Case, int], "tuple[Status, str] | None"]


def _timed(case: Case, trial: Trial, check: _Check, seed: int, name: str) -> CaseResult:
    begin = time.perf_counter()
    try:
        problem = check(trial, case, seed)
    except RunnerDied as died:
        return dead_case(case, died)
    status, reason = problem or (Status.PASS, "")
    seconds = time.perf_counter() - begin
    return CaseResult(label=f"{case.label}, {name}", status=status, reason=reason, seconds=seconds)


def _repeat(trial: Trial, case: Case, seed: int) -> tuple[Status, str] | None:
    inputs = make_case_inputs(trial.spec, case, seed, trial.device)
    first: Tensor | None = None
    for run in range(RUNS):
        call = trial.call(case, inputs, start=4096 * 37 * run, poison=run % 2, hold=0 if run == 0 else None)
        if call.output is None or call.raw is None:
            return call.status, call.problem
        if first is None:
            first = call.raw
        elif call.raw.shape != first.shape or not torch.equal(call.raw, first):
            changed = int((call.raw != first).sum()) if call.raw.shape == first.shape else first.numel()
            return (
                Status.FAIL,
                f"run {run + 1} on equal inputs differs from run 1 in {changed} of {first.numel()} bytes",
            )
    assert first is not None
    problem = _seen_otherwise(trial, case, inputs, first, seed)
    if problem:
        return problem
    other = make_case_inputs(trial.spec, case, derived_seed(seed, "other"), trial.device)
    trial.call(case, other)
    place = {"offset": ARENA_BYTES // 2, "capacity": ARENA_BYTES // 2}
    answer = trial.runner.ask(
        {"op": "recheck", "hold": 0, "out": place},
        seconds=trial.runner.limits.call_seconds,
        doing="reading an earlier output again",
    )
    _output, again = trial.take(answer["output"], place)
    if again is None or again.shape != first.shape or not torch.equal(again, first):
        trial.add_finding(
            "output_overwritten", "an output that was handed out changed when the kernel was called with other inputs"
        )
    return None


def _seen_otherwise(
    trial: Trial, case: Case, inputs: Sequence[Tensor], first: Tensor, seed: int
) -> tuple[Status, str] | None:
    """Call under the other observer; then see whether answers follow small changes, and take their time."""
    call = trial.call(case, inputs, observe="profile", private=True)
    if call.raw is None or not torch.equal(call.raw, first):
        trial.note_operators(case, call.answer, inputs, "profile")
        return Status.FAIL, "a call under PyTorch's profiler on equal inputs differs from run 1"
    result = trial.recall(case, inputs, derived_seed(seed, "recall"), _RECALL_SECONDS)
    if result is not None and result.status is not Status.PASS:
        return result.status, f"after a few elements of each input changed in place: {result.reason}"
    return None


def _churn(trial: Trial, case: Case, seed: int) -> tuple[Status, str] | None:
    """Call on three input sets in random order, each changed in place just before."""
    order = random.Random(seed)
    slots = [
        list(make_case_inputs(trial.spec, case, derived_seed(seed, "slot", slot), trial.device)) for slot in range(3)
    ]
    extents = ["", "a part of ", "a few elements of ", ""] * (CHURN_CALLS // 4)
    order.shuffle(extents)
    held = 0
    for number in range(CHURN_CALLS):
        slot = order.randrange(3) if number >= 3 else number
        fresh = make_case_inputs(trial.spec, case, derived_seed(seed, "fresh", number), trial.device)
        what = _refresh(slots[slot], fresh, extents[number - 3], order) if number >= 3 else "the first inputs"
        inputs = tuple(slots[slot])
        expected = golden_module.golden(trial.spec, case, inputs)
        call = trial.call(case, inputs, start=SLOT_BYTES * slot, slot=slot, poison=number % 2)
        result = trial.assess(case, call, expected)
        if result.status is not Status.PASS:
            reason = f"call {number + 1}, after {what} changed in place: {result.reason}"
            return result.status, reason
        if number == CHURN_CALLS // 3:
            held = _held_bytes(trial, call.answer)
    grown = _held_bytes(trial, call.answer) - held
    if grown > max(_LEAK_BYTES, 4 * call.answer["output"]["bytes"]):
        calls = CHURN_CALLS - 1 - CHURN_CALLS // 3
        trial.add_finding("memory_leak", f"memory grew by {grown / 1e6:.0f} MB over {calls} calls of one shape")
    return None


def _endure(trial: Trial, case: Case, seed: int, seconds: float = _ENDURANCE_SECONDS) -> tuple[Status, str] | None:
    """Make many calls on three input sets; each must give the bytes that the first gave, and those must be right."""
    sets = [make_case_inputs(trial.spec, case, derived_seed(seed, number), trial.device) for number in range(3)]
    described, free = trial.put_sets(sets)
    room = (ARENA_BYTES - free) // len(sets) // 4096 * 4096
    places = [{"offset": free + room * number, "capacity": room} for number in range(len(sets))]
    before = trial.runner.resident_bytes()
    request = {"op": "endure", "role": "candidate", "sets": described, "options": dict(case.options), "out": places}
    many = functools.partial(
        trial.runner.ask,
        {**request, "calls": ENDURANCE_CALLS, "seconds": seconds},
        seconds=trial.runner.limits.call_seconds,
        doing=f"calling kernel_fn many times on {case.label}",
    )
    answer = many()
    trial.note(answer)
    if not answer["ok"]:
        return Status.CRASH, f"one of many calls raised {answer['error']}"
    made = int(answer["calls"])
    for inputs, facts, place in zip(sets, answer["outputs"], places, strict=True):
        output = trial.take(facts, place)[0] if "bytes" in facts else None
        if output is None:
            return Status.FAIL, f"one of {made} calls returned no usable tensor"
        call = Call(output, "", Status.PASS, None, 0.0, answer)
        result = trial.assess(case, call, golden_module.golden(trial.spec, case, inputs))
        if result.status is not Status.PASS:
            return result.status, f"after {made} calls: {result.reason}"
    if answer["differs_at"] is not None:
        return Status.FAIL, f"call {answer['differs_at']} differs from the first on equal inputs, in at least one byte"
    if answer["overwritten"] and not trial.told("output_overwritten"):
        trial.add_finding("output_overwritten", f"an output that was handed out had changed {made} calls later")
    if answer["shared"] and not trial.told("output_overwritten"):
        trial.add_finding("output_overwritten", "outputs of different calls lie in the same memory block")
    if answer["watched"] >= 8 and answer["alive"] > answer["watched"] // 2 and not trial.told("memory_leak"):
        evidence = f"{answer['alive']} of {answer['watched']} outputs that nobody holds any more are still there"
        trial.add_finding("memory_leak", evidence)
    after = trial.runner.resident_bytes()
    # What was freed may stay with the allocator, several times over; it takes hardly more for the same calls again.
    working = sum(int(facts["bytes"]) for facts in answer["outputs"]) + sum(
        value.nbytes for inputs in sets for value in inputs
    )
    if not trial.told("memory_leak") and after - before > max(_LEAK_BYTES, 8 * working):
        many()
        if trial.runner.resident_bytes() - after > (after - before) // 4:
            evidence = f"memory grew by {(after - before) / 1e6:.0f} MB over {made} calls of one shape"
            trial.add_finding("memory_leak", evidence)
    return None


def _held_bytes(trial: Trial, answer: object) -> int:
    device_bytes = int(answer.get("device_bytes", 0)) if isinstance(answer, dict) else 0
    return trial.runner.resident_bytes() + device_bytes


def _refresh(current: list[Tensor], fresh: Sequence[Tensor], extent: str, order: random.Random) -> str:
    """Change some inputs in place: all of each, a part that spares both ends, or a few elements."""
    chosen = [index for index in range(len(current)) if order.random() < 0.6] or [order.randrange(len(current))]
    for index in chosen:
        old, new = current[index].reshape(-1), fresh[index].reshape(-1)
        if extent and old.numel() >= 16:
            spared = max(4, old.numel() // 8)
            merged = old.clone()
            if extent == "a part of ":
                middle = slice(spared, old.numel() - spared)
                merged[middle] = new[middle]
            else:
                few = [order.randrange(spared, old.numel() - spared) for _ in range(3)]
                merged[few] = new[few]
            current[index] = merged.reshape(current[index].shape)
        else:
            current[index] = fresh[index]
    return extent + " and ".join(f"input {index}" for index in chosen)
