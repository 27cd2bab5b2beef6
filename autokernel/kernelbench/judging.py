"""Who judges the candidates of a problem, and what the benchmark's own check would have said of them.

The check is KernelBench's: on five random inputs of the problem's one shape, with the weights of one seed, all
elements must be within ``0.01 + 0.01 * |expected|`` of what the model returns in the same dtype.  The candidate
runs in a runner of its own, as for every judgement of ours.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from autokernel import ops
from autokernel.evaluator import Evaluation, Evaluator, EvaluatorSettings
from autokernel.ops.problem import ProblemSpec
from autokernel.ops.spec import Case, TimingCase
from autokernel.runner.client import Limits, Runner, RunnerDied, Zygote
from autokernel.target import Target
from autokernel.verifier.stages import load_request
from autokernel.verifier.trial import Trial, derived_seed

__all__ = ["TOLERANCE", "TRIALS", "BenchmarkCheck", "Checker", "ProblemJudge"]

TRIALS = 5
TOLERANCE = 1e-2
DELEGATION = ("library_call",)


class ProblemJudge:
    """An evaluator for one problem: PyTorch may do the work of the kernel that a run starts from, and of no other.

    Args:
        target: What is optimised.
        starter: The text of the run's first kernel.
        library: PyTorch may do the work of any candidate.
    """

    def __init__(self, target: Target, starter: str, *, library: bool = False) -> None:
        self._starter, self._library = starter, library
        cases = [TimingCase(shape=one.shape, dtype=target.dtype, options=one.options) for one in target.timing]
        self._evaluator = Evaluator(
            target.reference, device=target.device, timing_cases=cases, dtype=target.dtype,
            settings=EvaluatorSettings(promising=1 + target.policy.threshold / 2),
        )  # fmt: skip

    def evaluate(self, source: str, *, incumbent: str | None = None, compiled: bool = False) -> Evaluation:
        """Judge a candidate; see `Evaluator.evaluate`."""
        allow = DELEGATION if self._library or source == self._starter else ()
        return self._evaluator.evaluate(source, incumbent=incumbent, compiled=compiled, allow=allow)

    def prestart(self) -> None:
        """Start the next runners."""
        self._evaluator.prestart()

    def close(self) -> None:
        """End the evaluator."""
        self._evaluator.close()


@dataclasses.dataclass(frozen=True)
class BenchmarkCheck:
    """What the benchmark's own check says of a candidate.

    Attributes:
        content: It would have passed.
        reason: Why not, or "".
    """

    content: bool
    reason: str = ""


class Checker:
    """Runs the benchmark's own check.  Use as a context manager.

    Args:
        reference: The problem's spec file.
        device: ``cpu`` or ``cuda:N``.
        limits: What a runner may use.
    """

    def __init__(self, reference: str, device: str, limits: Limits | None = None) -> None:
        spec = ops.resolve(reference)
        assert isinstance(spec, ProblemSpec)
        self._spec = spec
        self._device = device
        self._limits = limits or Limits()
        self._zygote = Zygote(device, needed=[Path(reference)])

    def check(self, source: str, *, seed: int = 42) -> BenchmarkCheck:
        """Say whether the benchmark would have taken a candidate for right.

        Args:
            source: The text of its kernel.py.
            seed: Of the inputs.
        """
        with self._zygote.spawn(self._limits) as runner:
            try:
                return self._checked(runner, source, seed)
            except RunnerDied as died:
                return BenchmarkCheck(False, str(died))

    def _checked(self, runner: Runner, source: str, seed: int) -> BenchmarkCheck:
        request = load_request(self._spec, "candidate", source)
        answer = runner.ask(request, seconds=self._limits.load_seconds, doing="importing kernel.py")
        if not answer["ok"]:
            return BenchmarkCheck(False, str(answer["error"]))
        trial = Trial(runner, self._spec, self._device, answer["backend"])
        case = Case(shape=self._spec.timing_shapes[0], dtype=self._spec.dtypes[0])
        for number in range(TRIALS):
            inputs = self._spec.benchmark_inputs(derived_seed(seed, number) % (1 << 31), self._device)
            call = trial.call(case, inputs, observe="nobody")
            if call.output is None:
                return BenchmarkCheck(False, call.problem)
            assert self._spec.baseline is not None
            expected = self._spec.baseline(*inputs)
            if call.output.shape != expected.shape:
                return BenchmarkCheck(False, f"shape {list(call.output.shape)}, expected {list(expected.shape)}")
            if not torch.allclose(expected, call.output, atol=TOLERANCE, rtol=TOLERANCE):
                worst = float((expected - call.output).abs().max())
                return BenchmarkCheck(False, f"input {number + 1} of {TRIALS}: an element is off by {worst:.3g}")
        return BenchmarkCheck(True)

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._zygote.close()
