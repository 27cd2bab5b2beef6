"""The model with kernels as a whole: are its outputs as right as before, and is it faster?

Each input set, and others made from it with another batch and length, is run through the plain
model, the model with kernels and a copy in higher precision (`accuracy`); a language model's tokens
and loss are compared too (`language`).  If an output fails, the replacements to blame are found
(`blame`).  Where no kernel ran, the model is compared with itself: such an input set counts as not
tested, and a check that consists of such sets has proven nothing and does not pass.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from autokernel.errors import UsageError
from autokernel.integration.accuracy import OutputError, Reference, judge, roundoff_of, run_once
from autokernel.integration.blame import Blame, find_blame
from autokernel.integration.integrated import Integration, integration_of
from autokernel.integration.language import LanguageAgreement, agreement
from autokernel.integration.report import Report
from autokernel.integration.sites import Site
from autokernel.integration.trees import Call, as_call
from autokernel.integration.variants import variants
from autokernel.integration.walltime import ModelTiming, time_model

__all__ = ["InputCheck", "ModelCheck", "amdahl", "check_model"]


_ALONE = "no kernel ran, so the model was compared with itself"

Shares = Mapping[str, float | tuple[float, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputCheck:
    """One input set.

    Attributes:
        name: ``inputs``, ``inputs 2``, or the variant, such as ``inputs, batch 1``.
        ok: Whether all outputs, tokens and the loss are within their bounds.
        outputs: One entry for each output.
        precision: Of the reference: ``float64``, ``float32``, or ``plain model`` where there is none.
        kernel_calls, original_calls: What ran where kernels stand.
        language: Of a language model.
        untested: Why it could not be run, or why that shows nothing, or "".
        note: What a reader must know, or "".
    """

    name: str
    ok: bool
    outputs: tuple[OutputError, ...] = ()
    precision: str = ""
    kernel_calls: int = 0
    original_calls: int = 0
    language: LanguageAgreement | None = None
    untested: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The outcome of `check_model`.

    Attributes:
        ok: Every input set that was tested passed, and a kernel ran.
        reason: Why not, or "".
        inputs: One entry for each input set.
        blame: Which replacements a failure needs, or None.
        timing: Wall and device times, or None.
        predicted: The speedup that Amdahl's law gives for the shares that were handed in, or None.
        report: Where kernels stand, with the counts of the first input set.
    """

    ok: bool
    reason: str
    inputs: tuple[InputCheck, ...]
    report: Report
    blame: Blame | None = None
    timing: ModelTiming | None = None
    predicted: float | None = None

    @property
    def proven(self) -> bool:
        """Whether a kernel ran, so that something was checked."""
        return any(one.kernel_calls for one in self.inputs)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON-ready data."""
        return {**dataclasses.asdict(dataclasses.replace(self, report=None)), "report": self.report.to_dict()}  # type: ignore[arg-type]


def check_model(
    model: nn.Module,
    inputs: Any,
    *,
    vary: bool = True,
    timed: bool = True,
    compiled: bool | str = False,
    graphs: bool = True,
    shares: Shares | None = None,
    seconds: float = 5.0,
    seed: int = 0,
    memory_bytes: float | None = None,
) -> ModelCheck:
    """Compare a model with kernels with what it was before.

    The model is put into eval mode meanwhile, and run without gradients, which kernels have no part in.

    Args:
        model: From `integrate`, with its kernels in it.
        inputs: One input set (see `autokernel.integration.trees`), or a list of several.
        vary: Try another batch and another length of each set, too.
        timed: Time the model on the first set.
        compiled: Time ``torch.compile`` of both models too; a string names its backend.
        graphs: On a GPU, time CUDA graphs of both models too.
        shares: Share of the plain model's time by operation, 0 to 1, for a prediction by Amdahl's law; see
            `amdahl`.
        seconds: What the timing may take.
        seed: Of the random numbers that the model draws.
        memory_bytes: What the copy in higher precision may take; half of what is free when None.

    Raises:
        UsageError: The model has no kernels, or the plain model fails on an input set.
    """
    integration = integration_of(model)
    calls = [as_call(one) for one in inputs] if isinstance(inputs, list) else [as_call(inputs)]
    if not calls:
        raise UsageError("no inputs were given; give at least one set")
    predicted = None if shares is None else amdahl(integration, shares)
    with _in_eval_mode(model):
        if integration.waiting:
            integration.restore()
            integration.learn(calls[0])
        with integration.suspended():
            examiner = _Examiner(integration, seed, memory_bytes)
        checks, report = examiner.examine(calls, vary)
        failed = [number for number, one in enumerate(checks) if not one.ok]
        blame = examiner.blame(failed[0]) if failed else None
        examiner.forget()
        timing = None
        if timed and checks[0].kernel_calls:
            timing = time_model(integration, calls[0], compiled=compiled, graphs=graphs, seconds=seconds)
    reason = ""
    if failed:
        reason = f"{checks[failed[0]].name}: {_what_failed(checks[failed[0]])}"
    elif not any(one.kernel_calls for one in checks):
        reason = _why_nothing_ran(report)
    return ModelCheck(
        ok=not reason, reason=reason, inputs=tuple(checks), report=report, blame=blame, timing=timing,
        predicted=predicted,
    )  # fmt: skip


def amdahl(integration: Integration, shares: Shares) -> float:
    """The speedup of the whole if each operation becomes as much faster as its kernel.

    Args:
        integration: Of the model.
        shares: By operation: its share, for the speedup that the kernel's run measured, over what the model runs
            where the run knows what that takes, else over PyTorch; or share and speedup.

    Source: G. Amdahl, AFIPS Conference Proceedings 30, 1967: ``1 / (1 - sum p + sum p / s)``.

    Raises:
        UsageError: Shares are no parts of a whole, or a kernel's speedup is not known.
    """
    parts = {
        name: one if isinstance(one, tuple) else (one, _measured(integration, name)) for name, one in shares.items()
    }
    fractions = [share for share, _speedup in parts.values()]
    if any(share < 0 for share in fractions) or sum(fractions) > 1 + 1e-9:
        raise UsageError(f"the shares {dict(shares)!r} are no parts of a whole; give fractions whose sum is at most 1")
    if any(speedup <= 0 for _share, speedup in parts.values()):
        raise UsageError(f"a speedup in {dict(shares)!r} is not above 0")
    return 1 / (1 - sum(share - share / speedup for share, speedup in parts.values()))


def _measured(integration: Integration, operation: str) -> float:
    kernel = next((one for one in integration.kernels if one.operation == operation), None)
    if kernel is not None and kernel.model_speedup is not None:
        return kernel.model_speedup
    if kernel is None or kernel.speedup is None:
        raise UsageError(
            f"no measured speedup of a {operation} kernel, so none can be predicted; give its run, or (share, speedup)"
        )
    return kernel.speedup.value


@contextlib.contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    with contextlib.suppress(NotImplementedError):  # an exported program has the mode it was exported in
        model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


class _Examiner:
    """Runs the three models on input sets, and again with fewer kernels to find what is to blame."""

    def __init__(self, integration: Integration, seed: int, memory_bytes: float | None) -> None:
        self.integration, self.seed = integration, seed
        self.model = integration.model
        self.roundoff = roundoff_of(self.model)
        self.reference: Reference | None = Reference(self.model, memory_bytes)
        self.cases: list[tuple[Call, dict[str, Any], dict[str, Any] | None, list[Site]]] = []

    def examine(self, calls: Sequence[Call], vary: bool) -> tuple[list[InputCheck], Report]:
        checks, report = [], None
        for number, call in enumerate(calls):
            name = "inputs" if number == 0 else f"inputs {number + 1}"
            checks.append(self._one(name, call, given=True))
            report = report or self.integration.report()
            for variant, changed in variants(call) if vary else []:
                checks.append(self._one(f"{name}, {variant}", changed, given=False))
        assert report is not None
        return checks, report

    def _one(self, name: str, call: Call, *, given: bool) -> InputCheck:
        try:
            with self.integration.suspended():
                plain = run_once(self.model, call, self.seed)
        except Exception as error:
            self.cases.append((call, {}, None, []))
            problem = f"the plain model fails: {type(error).__name__}: {str(error)[:200]}"
            if given:
                raise UsageError(f"{name}: {problem}; pass inputs that model(...) accepts") from error
            return InputCheck(name=name, ok=True, untested=problem)
        reference = self.reference.run(call, self.seed) if self.reference is not None else None
        self.integration.reset_counts()
        try:
            ours = run_once(self.model, call, self.seed)
        except Exception as error:
            return self._broken(name, call, plain, reference, error)
        report = self.integration.report()
        self.cases.append((call, plain, reference, [site for site in self.integration.sites if site.kernel_calls]))
        outputs, note = judge(plain, ours, reference, self.roundoff)
        trusted = None if note else reference
        language = agreement(call, plain, ours, trusted, self.roundoff)
        right = all(one.ok for one in outputs) and (language is None or language.ok)
        precision = "plain model" if trusted is None or self.reference is None else self.reference.precision
        return InputCheck(
            name=name,
            ok=right,
            untested=_ALONE if right and not report.kernel_calls else "",
            outputs=tuple(outputs),
            precision=precision,
            kernel_calls=report.kernel_calls,
            original_calls=report.original_calls,
            language=language,
            note=note or (self.reference.note if self.reference is not None else ""),
        )

    def _broken(self, name: str, call: Call, plain: Any, reference: Any, error: Exception) -> InputCheck:
        self.cases.append((call, plain, reference, [site for site in self.integration.sites if site.kernel_calls]))
        reason = f"the model raises {type(error).__name__}: {str(error)[:200]}"
        failure = OutputError(path="output", original=0.0, integrated=float("inf"), bound=0.0, ok=False, reason=reason)
        return InputCheck(name=name, ok=False, outputs=(failure,))

    def blame(self, number: int) -> Blame:
        """Find the replacements that the failure of one input set needs."""
        call, plain, reference, sites = self.cases[number]

        def fails(some: Sequence[Site]) -> bool:
            with self.integration.only(some):
                try:
                    ours = run_once(self.model, call, self.seed)
                except Exception:
                    return True
            outputs, note = judge(plain, ours, reference, self.roundoff)
            language = agreement(call, plain, ours, None if note else reference, self.roundoff)
            return not all(one.ok for one in outputs) or (language is not None and not language.ok)

        counts = [(site, site.kernel_calls.copy(), site.original_calls.copy()) for site in self.integration.sites]
        for site in sites:  # the kernels that ran on this set, though later sets were counted since
            if not site.kernel_calls:
                site.kernel_calls.update(self._kernels_at(site))
        try:
            return find_blame(sites, fails)
        finally:
            for site, kernel_calls, original_calls in counts:
                site.kernel_calls, site.original_calls = kernel_calls, original_calls

    def _kernels_at(self, site: Site) -> dict[str, int]:
        return {kernel.name: 1 for kernel in self.integration.kernels if kernel.operation == site.operation}

    def forget(self) -> None:
        """Free what the outputs and the copy take, before anything is timed."""
        self.cases.clear()
        self.reference = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _why_nothing_ran(report: Report) -> str:
    """What kept every kernel from running, and what to do."""
    causes = [str(gap) for gap in report.gaps]
    advice = []
    if report.gaps:
        advice.append(
            f"make a run on the model's own sizes ({report.gaps[0].command}), or let kernels take the calls on which "
            "they are right now (--admit checked)"
        )
    else:
        seen = {reason: place.what for place in report.places for reason in place.original_calls}
        refused = {reason: what for (_path, what), reason in report.refused.items()}
        causes += [f"{what}: {reason}" for reason, what in {**refused, **seen}.items()]
    if report.unused and not causes:
        causes.append(f"the model calls nothing that {', '.join(report.unused)} computes")
        advice.append("give kernels of operations that the model uses, which `autokernel profile` lists")
    told = "; ".join(causes) or "the kernels' places were not reached"
    return "; ".join([f"no kernel ran, so the model was compared with itself and nothing is proven: {told}", *advice])


def _what_failed(check: InputCheck) -> str:
    bad = [one for one in check.outputs if not one.ok]
    if bad:
        return f"{bad[0].path}: {bad[0].reason}" + (f" (and {len(bad) - 1} more outputs)" if len(bad) > 1 else "")
    assert check.language is not None
    return (
        f"greedy tokens are right at {check.language.integrated_right:.2%} of the positions, the plain model's at "
        f"{check.language.original_right:.2%}; loss {check.language.integrated_loss:.6g} for {check.language.loss:.6g}"
    )
