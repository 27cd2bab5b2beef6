"""Measure a candidate beside its rivals, and make sure that what was timed is what was verified.

The judge's half of the paired timing.  The runner (`timing`) takes interleaved samples; here the
inputs are made, rewritten in place between batches, outputs of calls *inside* the timed batches are
compared with the right answer, and the runner's clock is checked against the judge's own.

Units: microseconds, unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autokernel import statistics
from autokernel.hardware.roofline import Roofline
from autokernel.measurement import CaseTiming, Contestant, Measurement
from autokernel.ops.spec import KernelSpec, TimingCase, dtype_named
from autokernel.runner import repeated
from autokernel.runner.protocol import ARENA_BYTES
from autokernel.verdict import CaseResult, Status
from autokernel.verifier import golden as golden_module
from autokernel.verifier.trial import Trial, derived_seed, explain, make_case_inputs

__all__ = ["TimingFailed", "TimingSettings", "measure"]

_SPIN_US = 40_000.0
_MESSAGE_SECONDS = 0.015
_RECALL_SECONDS = 0.3
_LOOKS = 3  # outputs that are compared in each batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimingSettings:
    """How long to time, and how exactly.

    Attributes:
        batch_rounds: Rounds between two looks at the interval.
        least_batches: Batches taken in any case; the inputs are rewritten in place between them, whole
            before the second, in a few places before those that follow.
        seconds: Sampling goes on at most this long for each timing case.
        half_width: Sampling ends when the interval of the speedup over the incumbent (over every other
            contestant, if there is none) is at most this wide, relatively, to either side.
        call_rounds: Samples of the time that a caller sees.
    """

    batch_rounds: int = 16
    least_batches: int = 3
    seconds: float = 1.0
    half_width: float = 0.004
    call_rounds: int = 12


class TimingFailed(Exception):
    """A contestant could not be timed; the message says which and why."""


def measure(
    trial: Trial,
    spec: KernelSpec,
    timing_cases: Sequence[TimingCase],
    roles: Sequence[str],
    *,
    seed: int,
    roofline: Roofline | None,
    settings: TimingSettings,
) -> Measurement:
    """Time the contestants that are loaded in the trial's runner.

    Findings (a wrong output inside the timed calls, a clock that disagrees, a time below the floor)
    are added to the trial.

    Args:
        trial: An accepted candidate's trial.
        spec: The operation.
        timing_cases: What to time on, with weights.
        roles: The loaded contestants, ``candidate`` among them.
        seed: All inputs follow from it.
        roofline: The device's measured peaks; without them there is no floor.
        settings: How long, how exactly.

    Raises:
        RunnerDied: The runner ended or passed its deadline.
        TimingFailed: A contestant raised.
    """
    begin = time.perf_counter()
    timed = []
    for number, timing_case in enumerate(timing_cases):
        timed.append(_CaseTimer(trial, spec, timing_case, roles, derived_seed(seed, number), roofline, settings).run())
    others = [role for role in roles if role != "candidate"]
    speedups = {
        role: statistics.weighted_speedup(
            [(case.contestants["candidate"].samples_us, case.contestants[role].samples_us) for case, _notes in timed],
            [case.weight for case, _notes in timed],
            seed=seed % 2**31,
        )
        for role in others
    }
    cases = tuple(case for case, _notes in timed)
    worst = min(
        ((case.label, case.speedups["incumbent"]) for case in cases if "incumbent" in case.speedups),
        key=lambda entry: entry[1].high,
        default=None,
    )
    return Measurement(
        cases=cases,
        speedups=speedups,
        worst_case=worst,
        peak_memory_mb=trial.peak_bytes / 1e6,
        seconds=time.perf_counter() - begin,
        throttled=any(_slowed(case) for case in cases if case.method != "wall"),
        notes=tuple(note for _case, notes in timed for note in notes),
    )


def _slowed(case: CaseTiming) -> bool:
    """Whether all contestants grew slower together during the samples, as when a GPU's clocks fall.

    Not asked of a CPU, where busy neighbours do the same all the time; the pairing is made for that.
    """
    ratios = []
    for contestant in case.contestants.values():
        samples = contestant.samples_us
        part = max(1, len(samples) // 4)
        ratios.append(statistics.quantile(samples[-part:], 0.5) / statistics.quantile(samples[:part], 0.5))
    return min(ratios) > 1.1


def _sparse_change(new: Tensor, order: random.Random) -> tuple[Tensor, Tensor]:
    """A few single elements and one short run of ``new``: their numbers, in row-major order, and their values."""
    count = new.numel()
    run = count // 4096
    start = order.randrange(max(1, count - run))
    single = [order.randrange(count) for _ in range(min(16, count))]
    places = torch.tensor([*range(start, start + run), *single], dtype=torch.int64, device=new.device)
    return places, new.reshape(-1)[places]


class _CaseTimer:
    """The timing of one case: inputs, batches, checks."""

    def __init__(
        self,
        trial: Trial,
        spec: KernelSpec,
        timing_case: TimingCase,
        roles: Sequence[str],
        seed: int,
        roofline: Roofline | None,
        settings: TimingSettings,
    ) -> None:
        self.trial, self.spec, self.timing_case, self.roles = trial, spec, timing_case, list(roles)
        self.seed, self.roofline, self.settings = seed, roofline, settings
        self.case = timing_case.case
        self.inputs: list[tuple[Tensor, ...]] = []
        self.right: dict[int, tuple[torch.Size, Tensor]] = {}  # an output's shape and bytes, for an input set as it is
        self.notes: list[str] = []
        self.random = random.Random(seed)

    def run(self) -> tuple[CaseTiming, list[str]]:
        self._observe()
        self._hand_over(0, rewrite=False)
        prepared = self._ask(
            {"op": "prepare", "roles": self.roles, "options": dict(self.case.options)}, "preparing the timing"
        )
        self.notes += [f"{self.case.label}: {note}" for note in prepared["notes"]]
        samples = self._sample(prepared["method"])
        calls = samples
        if prepared["method"] != "wall":
            request = {"op": "call_time", "rounds": self.settings.call_rounds, "seed": self.random.randrange(2**31)}
            calls = self._ask(request, "timing calls")["samples_us"]
        self._check_clock(samples, prepared["method"])
        return self._summary(samples, calls, prepared["method"]), self.notes

    def _observe(self) -> None:
        """Call the candidate once on what is timed, under both observers, and once more as the same content again."""
        inputs = make_case_inputs(self.spec, self.case, derived_seed(self.seed, "observed"), self.trial.device)
        expected = golden_module.golden(self.spec, self.case, inputs)
        for observe in ("dispatch", "profile"):
            call = self.trial.call(self.case, inputs, observe=observe, private=True)
            if call.status is Status.CRASH:
                raise TimingFailed(f"calling kernel_fn on {self.case.label}: {call.problem}")
            self._note_if_wrong(self.trial.assess(self.case, call, expected))
        seed = derived_seed(self.seed, "recalled")
        self._note_if_wrong(self.trial.recall(self.case, inputs, seed, _RECALL_SECONDS))

    def _note_if_wrong(self, result: CaseResult | None) -> None:
        if result is not None and result.status is not Status.PASS:
            when = f"inside the timing of {self.case.label}, before the samples"
            self.trial.add_finding("wrong_when_timed", f"a call {when}, was wrong: {result.reason}")

    def _ask(self, request: dict[str, Any], doing: str) -> dict[str, Any]:
        runner = self.trial.runner
        answer = runner.ask(request, seconds=runner.limits.timing_seconds, doing=f"{doing} on {self.case.label}")
        if not answer["ok"]:
            raise TimingFailed(f"{doing} on {self.case.label}: {answer['error']}")
        return answer

    # Inputs

    def _set_count(self, one: Sequence[Tensor]) -> int:
        size = sum(value.numel() * value.element_size() for value in one)
        if self.trial.device == "cpu":
            return 4 if size < 32 << 20 else 2
        cache = self.roofline.cache_bytes if self.roofline else 64 << 20
        return max(2, min(64, -(-3 * cache // max(size, 1))))

    def _hand_over(self, batch: int, *, rewrite: bool) -> None:
        """Make fresh inputs and have the runner copy them, over the old ones if ``rewrite``.

        From the third batch on only a few places of the old ones change, which no fingerprint but
        one of the whole content shows.
        """
        first = make_case_inputs(self.spec, self.case, derived_seed(self.seed, batch, 0), self.trial.device)
        count = len(self.inputs) if rewrite else self._set_count(first)
        sets = [
            first
            if index == 0
            else make_case_inputs(self.spec, self.case, derived_seed(self.seed, batch, index), self.trial.device)
            for index in range(count)
        ]
        self.right.clear()
        if batch >= 2:
            self._amend(sets)
            return
        described, self.free = self.trial.put_sets(sets)
        self._ask({"op": "inputs", "sets": described, "rewrite": rewrite}, "copying inputs")
        self.inputs = sets

    def _amend(self, sets: Sequence[Sequence[Tensor]]) -> None:
        changes = [[_sparse_change(new, self.random) for new in one] for one in sets]
        for inputs, one in zip(self.inputs, changes, strict=True):
            for value, (places, values) in zip(inputs, one, strict=True):
                repeated.amend(value, places, values)
        described, self.free = self.trial.put_sets([[tensor for pair in one for tensor in pair] for one in changes])
        self._ask({"op": "amend", "sets": described}, "changing inputs")

    # Samples

    def _sample(self, method: str) -> dict[str, list[float]]:
        settings = self.settings
        samples: dict[str, list[float]] = {role: [] for role in self.roles}
        begin = time.perf_counter()
        batch = 0
        while True:
            if 0 < batch < settings.least_batches:
                self._hand_over(batch, rewrite=True)
            keep_set = self.random.randrange(len(self.inputs))
            request = {
                "op": "time",
                "rounds": settings.batch_rounds,
                "seed": self.random.randrange(2**31),
                "keep_set": keep_set,
                "keep": [self.random.random() for _ in range(_LOOKS)],
            }
            answer = self._ask(request, "timing")
            for role in self.roles:
                samples[role] += [float(value) for value in answer["samples_us"][role]]
            batch += 1
            enough = batch >= settings.least_batches and (
                time.perf_counter() - begin > settings.seconds or self._exact_enough(samples)
            )
            if method == "wall" or batch <= settings.least_batches or enough:
                changed = ", after the inputs were changed in place" if batch > 1 else ""
                self._check_outputs(f"inside the timing of {self.case.label}{changed}", keep_set)
            if enough:
                return samples

    def _exact_enough(self, samples: Mapping[str, Sequence[float]]) -> bool:
        widths = [
            statistics.relative_half_width(samples["candidate"], samples[role])
            for role in self.roles
            if role == "incumbent" or "incumbent" not in self.roles and role != "candidate"
        ]
        return all(width <= self.settings.half_width for width in widths)

    def _check_outputs(self, when: str, expected_set: int | None = None) -> None:
        """Compare outputs of calls that the runner made on its own, and kept, with the right answer."""
        room = (ARENA_BYTES - self.free) // _LOOKS // 4096 * 4096  # behind the inputs
        places = [{"offset": self.free + room * number, "capacity": room} for number in range(_LOOKS)]
        outputs = self._ask({"op": "kept", "out": places}, "reading outputs")["outputs"]
        if not outputs or expected_set is not None and any(facts["set"] != expected_set for facts in outputs):
            self.trial.add_finding("wrong_when_timed", "outputs of timed calls are missing")
        for facts, place in zip(outputs, places, strict=False):
            self._check_output(facts, place, when)

    def _check_output(self, facts: Mapping[str, Any], place: Mapping[str, int], when: str) -> None:
        output, raw = self.trial.take(facts, place) if "dtype" in facts else (None, None)
        if output is None or raw is None:
            self.trial.add_finding("wrong_when_timed", "a timed call returned no usable tensor")
            return
        number = int(facts["set"]) % len(self.inputs)
        right = self.right.get(number)
        if right is not None and output.shape == right[0] and torch.equal(raw, right[1]):
            return
        expected = golden_module.golden(self.spec, self.case, self.inputs[number])
        if output.shape != expected.value.shape:
            self.trial.add_finding("wrong_when_timed", f"a timed call returned the shape {list(output.shape)}")
            return
        comparison = golden_module.compare(output, expected)
        if comparison.agrees:
            self.right[number] = (output.shape, raw)
        else:
            self.trial.add_finding("wrong_when_timed", f"a call {when}, was wrong: {explain(comparison)}")

    # Checks

    def _check_clock(self, samples: Mapping[str, Sequence[float]], method: str) -> None:
        """Compare the runner's clock with the judge's: N calls against 2 N calls, timed by both.

        The judge's watch runs over the same calls as the runner's, so a busy machine slows both.
        The last of the calls must still give the right answers.
        """
        claimed = statistics.quantile(samples["candidate"], 0.5)
        keep = _LOOKS if method == "wall" else 1  # a GPU's outputs take long to cross
        calls = max(keep + 1, min(4000, round(_SPIN_US / max(claimed, 1.0))))
        for _attempt in range(3):
            inside, outside = [], []
            for count in (calls, 2 * calls):
                begin = time.perf_counter()
                request = {"op": "spin", "role": "candidate", "calls": count, "keep": keep}
                answer = self._ask(request, "counting calls")
                outside.append(time.perf_counter() - begin)
                inside.append(float(answer["seconds"]))
            self._check_outputs(f"inside the timing of {self.case.label}, {3 * calls} calls later")
            seen, told = outside[1] - outside[0], inside[1] - inside[0]
            per_call_us = told / calls * 1e6
            # A graph's replay holds no launches, so a sample may be shorter than a call by their cost.
            plausible = per_call_us < 4.0 * claimed + 30.0 or (method != "wall" and per_call_us < 200.0)
            if seen - told < 0.5 * told + _MESSAGE_SECONDS and plausible:
                return
        self.trial.add_finding(
            "clock_disagrees",
            f"the runner claims {claimed:.1f} us in samples and {per_call_us:.1f} us in a row for a call, "
            f"the judge saw {seen / calls * 1e6:.1f} us from outside",
        )

    def _summary(
        self, samples: Mapping[str, Sequence[float]], calls: Mapping[str, Sequence[float]], method: str
    ) -> CaseTiming:
        contestants = {
            role: Contestant(
                name=role,
                latency_us=statistics.quantile(samples[role], 0.5),
                low_us=statistics.quantile(samples[role], 0.2),
                high_us=statistics.quantile(samples[role], 0.8),
                call_us=statistics.quantile(calls[role], 0.5),
                samples_us=tuple(samples[role]),
            )
            for role in self.roles
        }
        latency = contestants["candidate"].latency_us
        flops, moved = self._work()
        floor = self._floor(flops, moved, latency, method)
        return CaseTiming(
            label=self.case.label,
            weight=self.timing_case.weight,
            method=method,
            contestants=contestants,
            speedups={
                role: statistics.speedup(samples["candidate"], samples[role], seed=self.seed % 2**31)
                for role in self.roles
                if role != "candidate"
            },
            floor_us=floor,
            tflop_per_s=flops / latency / 1e6 if flops else None,
            gb_per_s=moved / latency / 1e3,
            fraction_of_peak=min(1.0, floor / latency) if floor else None,
        )

    def _work(self) -> tuple[float, float]:
        """FLOP and least bytes of one call."""
        flops = float(self.spec.flops(self.case.shape)) if self.spec.flops else 0.0
        itemsize = dtype_named(self.case.dtype).itemsize
        if self.spec.bytes_moved is not None:
            return flops, float(self.spec.bytes_moved(self.case.shape, itemsize))
        return flops, float(sum(value.numel() * value.element_size() for value in self.inputs[0]))

    def _floor(self, flops: float, moved: float, latency: float, method: str) -> float | None:
        if self.roofline is None:
            return None
        cold = moved * len(self.inputs) > 2 * self.roofline.cache_bytes
        if not cold and self.roofline.in_cache(moved * len(self.inputs)):
            return None  # the data stay in the cache, and memory bandwidth bounds nothing
        floor = self.roofline.floor_us(flops, moved, self.case.dtype)
        least = self.roofline.peak_floor_us(flops, moved, self.case.dtype)
        if method == "graph" and cold and latency < 0.9 * least:
            self.trial.add_finding(
                "faster_than_physics",
                f"{latency:.1f} us on {self.case.label}, where the device's peak allows no less than {least:.1f} us",
            )
        return floor
