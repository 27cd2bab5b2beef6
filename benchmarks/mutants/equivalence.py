"""Does a mutant that was accepted differ from its starter at all?

Both are run in runners of their own on the same inputs: every case of the verification under another
seed, and random ones (shape, dtype, values, layout, options) besides.  A mutant whose outputs all
have the same bytes counts as equivalent.  Where they differ, the error is compared with the bound:
below it the mutant rounds differently, above it the verification has missed a wrong kernel.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import torch

from autokernel.ops.spec import Case, KernelSpec
from autokernel.runner.client import Limits, Runner, RunnerDied, Zygote
from autokernel.verifier import golden, stages
from autokernel.verifier.layouts import LAYOUTS
from autokernel.verifier.plan import fill_names, plan
from autokernel.verifier.trial import Call, Trial, derived_seed, make_case_inputs

__all__ = ["Difference", "Equivalence", "broad_cases"]

SEED = 20261130
_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 257, 1000, 2049)
_FEW = (1, 2, 3, 5)  # batches and heads: each is a program or more
_INTERPRETED, _COMPILED = (40, 10_000), (80, 150_000)  # random cases, and how large a case may be


@dataclasses.dataclass(frozen=True)
class Difference:
    """How a mutant's outputs differ from its starter's.

    Attributes:
        cases: How many were tried.
        changed: In how many the output's bytes differ, or the mutant fails.
        error_over_bound: The mutant's largest error among them, as a multiple of what the verifier
            allows; infinite where it fails or gives a NaN.
        starter_over_bound: The starter's largest error in that case, in the same unit.
        worst: That case.
    """

    cases: int
    changed: int
    error_over_bound: float
    starter_over_bound: float
    worst: str


def broad_cases(spec: KernelSpec, *, count: int, volume: int) -> list[Case]:
    """The cases of the verification without the large ones, and ``count`` random ones.

    Args:
        spec: The operation.
        count: How many random cases.
        volume: The largest product of a random case's sizes.
    """
    large = list(spec.large_shapes)
    planned = [case for cases in plan(spec).values() for case in cases if case.shape not in large]
    order = random.Random(SEED)
    shapes = [*spec.shapes, *(spec.edge_shapes or ())]
    patterns, options = ["normal", *fill_names(spec)], [*spec.options, *spec.extensions]
    drawn: list[Case] = []
    for _attempt in range(20 * count):
        case = Case(
            shape={name: order.choice(_FEW if name in ("B", "H") else _SIZES) for name in order.choice(shapes)},
            dtype=order.choice(list(spec.dtypes)),
            fill=order.choice(patterns),
            layout=order.choice(LAYOUTS) if spec.strided_inputs else "contiguous",
            options=order.choice(options),
        )
        if len(drawn) < count and math.prod(case.shape.values()) <= volume and _is_defined(spec, case):
            drawn.append(case)
    return list({case.label: case for case in (*planned, *drawn)}.values())


def _is_defined(spec: KernelSpec, case: Case) -> bool:
    """Whether the operation is defined for a random shape; an odd head size, say, is none."""
    try:
        golden.golden(spec, case, make_case_inputs(spec, case, SEED, "cpu"))
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


class Equivalence:
    """Compares mutants of one starter with it.  Use as a context manager.

    Args:
        spec: The operation.
        device: ``cpu`` or ``cuda:0``.
        source: The starter's text.
        limits: For the runners.
        cases: What to compare on; `broad_cases` when None.
    """

    def __init__(
        self, spec: KernelSpec, device: str, source: str, limits: Limits, cases: Sequence[Case] | None = None
    ) -> None:
        self.spec, self.device, self.source, self.limits = spec, device, source, limits
        self._zygote = Zygote(device)
        self._wanted = cases
        self._cases: list[Case] = []
        self._right: list[Call] = []

    def __enter__(self) -> Equivalence:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._zygote.close()

    def compare(self, mutant: str) -> Difference:
        """Run a mutant on the broad cases and compare its outputs, byte by byte, with the starter's."""
        if not self._cases:
            self._remember_starter()
        changed, worst, of_starter, label = 0, 0.0, 0.0, ""
        with self._runner() as runner:
            trial = self._load(runner, mutant)
            for number, (case, right) in enumerate(zip(self._cases, self._right, strict=True)):
                try:
                    call = self._call(trial, case, number)
                except RunnerDied as died:
                    return Difference(number + 1, changed + 1, math.inf, 0.0, f"{case.label}: {died}")
                if call.raw is not None and right.raw is not None and torch.equal(call.raw, right.raw):
                    continue
                changed += 1
                ratio, right_ratio = self._errors(trial, case, number, call, right)
                if ratio >= worst:
                    worst, of_starter, label = ratio, right_ratio, case.label
        return Difference(len(self._cases), changed, worst, of_starter, label)

    def _runner(self) -> Runner:
        return self._zygote.spawn(self.limits)

    def _load(self, runner: Runner, source: str) -> Trial:
        request = stages.load_request(self.spec, "candidate", source)
        answer = runner.ask(request, seconds=self.limits.load_seconds, doing="importing kernel.py")
        return Trial(runner, self.spec, self.device, answer["backend"])

    def _remember_starter(self) -> None:
        with self._runner() as runner:
            trial = self._load(runner, self.source)
            count, volume = _INTERPRETED if trial.interpreted else _COMPILED
            wanted = broad_cases(self.spec, count=count, volume=volume) if self._wanted is None else self._wanted
            for case in wanted:
                if trial.not_testable(case):
                    continue
                number = len(self._cases)
                call = self._call(trial, case, number)
                if math.isfinite(self._errors(trial, case, number, call)[0]):  # else not defined for these sizes
                    self._cases.append(case)
                    self._right.append(call)

    def _inputs(self, case: Case, number: int) -> tuple[torch.Tensor, ...]:
        return make_case_inputs(self.spec, case, derived_seed(SEED, number), self.device)

    def _call(self, trial: Trial, case: Case, number: int) -> Call:
        return trial.call(case, self._inputs(case, number), poison=number % 2)

    def _errors(self, trial: Trial, case: Case, number: int, *calls: Call) -> list[float]:
        """The largest error of each call as a multiple of the bound; infinite where there is no output."""
        expected = golden.golden(self.spec, case, self._inputs(case, number))
        ratios = [trial.assess(case, call, expected).error_over_bound for call in calls]
        return [math.inf if ratio is None else ratio for ratio in ratios]
