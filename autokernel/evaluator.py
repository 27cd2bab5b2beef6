"""Judge candidates: verification, paired timing, confirmation; one call for each candidate.

The evaluator owns the zygote and always keeps one runner ready, so that the isolation of a process
of its own costs a candidate no waiting.  It runs in the judge's process, which holds inputs, seeds
and golden values; it never imports a candidate.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import platform
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from autokernel import ops, paired
from autokernel.errors import RunnerLost, UsageError
from autokernel.hardware import Device, Roofline, detect, roofline
from autokernel.measurement import Measurement
from autokernel.ops.spec import KernelSpec, TimingCase
from autokernel.paired import TimingFailed, TimingSettings
from autokernel.runner.client import Limits, Runner, RunnerDied, Zygote
from autokernel.verdict import Finding, Stage, Verdict
from autokernel.verifier import integrity, sanitize, selftest
from autokernel.verifier import stages as verification
from autokernel.verifier.trial import Trial, derived_seed

__all__ = ["Evaluation", "Evaluator", "EvaluatorSettings", "device_lock", "harness_hash"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatorSettings:
    """How candidates are judged.

    Attributes:
        limits: What a runner may use, and its deadlines.
        timing: How long and how exactly to time.
        isolation: ``namespaces``, ``landlock`` or ``process``; the strongest available when None.
        runners: How many runners share the verification of one candidate; when None, up to four on a
            GPU, where most of the time goes into compiling on the host, and one on a CPU.
        allow: Kinds of findings that are reported and do not reject, such as ``library_call`` to judge
            a wrapped operator of PyTorch by its values alone.
        large: Try offsets beyond 2**31 elements too, where the memory is there; when None, on a GPU only,
            because on a CPU the case takes many seconds.
        sanitize: Run an accepted candidate under NVIDIA's compute-sanitizer too; what it reports rejects.
        promising: A first measurement whose low end reaches this is confirmed by a second one.
        roofline: Measure the device's peaks, so that each measurement has its floor.
    """

    limits: Limits = Limits()
    timing: TimingSettings = TimingSettings()
    isolation: str | None = None
    runners: int | None = None
    allow: tuple[str, ...] = ()
    large: bool | None = None
    sanitize: bool = False
    promising: float = 1.005
    roofline: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All that was found out about one candidate.

    Attributes:
        verdict: Right or wrong.
        measurement: The paired timing, if it was accepted; None for a Triton kernel on a CPU, because
            the interpreter's time says nothing about a speed.
        confirmation: A second one, in a new process on fresh inputs, if the first was promising.
        seconds: The whole evaluation.
    """

    verdict: Verdict
    measurement: Measurement | None = None
    confirmation: Measurement | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON-ready data, samples included."""
        times = {"measurement": self.measurement, "confirmation": self.confirmation}
        found = {name: None if one is None else one.to_dict() for name, one in times.items()}
        return {"verdict": self.verdict.to_dict(), **found, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_dict` made."""
        measurement, confirmation = (
            Measurement.from_dict(data[name]) if data[name] else None for name in ("measurement", "confirmation")
        )
        return cls(
            verdict=Verdict.from_dict(data["verdict"]),
            measurement=measurement,
            confirmation=confirmation,
            seconds=data["seconds"],
        )


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _again_if_lost(
    judge: Callable[Concatenate[Evaluator, _P], _R],
) -> Callable[Concatenate[Evaluator, _P], _R]:
    """Judge on half of the cores, and once more, with a new zygote, when the old one was lost on the way."""

    @functools.wraps(judge)
    def method(self: Evaluator, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock, _half_of_the_cores():
            try:
                return judge(self, *args, **kwargs)
            except RunnerLost:
                self._restart()
                return judge(self, *args, **kwargs)

    return method


class Evaluator:
    """Judges candidates for one operation on one device.  Use as a context manager.

    Args:
        reference: A shipped operation's name, ``my_op.py`` or ``my_op.py:name``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        timing_cases: What to time on; the spec's first timing shape for the device when None.
        dtype: The target's dtype; when None the spec's first, or float32 on a CPU.
        settings: How to judge.
        progress: Told of each stage and case, with dictionaries.

    Raises:
        UnknownOperation, InvalidSpec: The operation is not known or its spec accepts wrong answers.
        DeviceUnavailable: The device is not there.
        UsageError: ``sanitize`` is asked for where there is no compute-sanitizer or no NVIDIA GPU.
    """

    def __init__(
        self,
        reference: str,
        *,
        device: str = "auto",
        timing_cases: Sequence[TimingCase] | None = None,
        dtype: str | None = None,
        settings: EvaluatorSettings | None = None,
        progress: verification.Progress | None = None,
    ) -> None:
        self.reference = str(Path(reference).resolve()) if reference.endswith(".py") else reference
        if ".py:" in reference:
            file, _, name = reference.rpartition(":")
            self.reference = f"{Path(file).resolve()}:{name}"
        self.spec: KernelSpec = ops.resolve(self.reference)
        self.device: Device = detect(device)
        self.dtype = dtype or self.spec.usual_dtype(gpu=self.device.is_gpu)
        if self.dtype not in self.spec.dtypes:
            raise UsageError(
                f"operation {self.spec.name!r} is not defined in {self.dtype}; "
                f"choose one of {', '.join(self.spec.dtypes)}"
            )
        self.timing_cases = list(timing_cases) if timing_cases else [_default_timing_case(self)]
        self._needed = sorted({name for case in self.timing_cases for name in case.options})
        self.settings = settings or EvaluatorSettings()
        self._sanitizer = sanitize.find(self.device.torch_name) if self.settings.sanitize else ""
        self._progress = progress
        if self.reference.endswith(".py") or ".py:" in self.reference:
            selftest.check_spec(self.spec, self.device.torch_name)
        self._zygote = self._start_zygote()
        self._spares: list[Runner] = []
        self._runner_count = self.settings.runners or (
            max(1, min(4, (os.cpu_count() or 1) // 2)) if self.device.is_gpu else 1
        )
        self._roofline: Roofline | None = None
        self._lock = threading.RLock()
        self._closed = False

    def _start_zygote(self) -> Zygote:
        needed = [Path(self.reference.rpartition(":")[0] or self.reference)] if ".py" in self.reference else []
        return Zygote(self.device.torch_name, level=self.settings.isolation, needed=needed)

    # Runners

    def prestart(self) -> None:
        """Start the next runners now, so that they are ready when a candidate arrives.

        Call it while no candidate is judged: a runner that comes up disturbs a timing.
        """
        with self._lock:
            self._spawn(self._runner_count + 1)  # one more than a verification takes, to confirm a winner

    def _spawn(self, count: int) -> None:
        while len(self._spares) < count and not self._closed:
            self._spares.append(self._zygote.spawn(self.settings.limits))

    @contextlib.contextmanager
    def _runners(self, count: int) -> Iterator[list[Runner]]:
        """Hand out runners, of which the first is up, and end them afterwards."""
        with contextlib.ExitStack() as stack:
            for attempt in range(3):
                try:
                    self._spawn(count)
                    runners = [stack.enter_context(self._spares.pop(0)) for _ in range(count)]
                    runners[0].wait_ready()  # the others come up while the first tries the smoke stage
                    break
                except RunnerLost:
                    if attempt == 2:
                        raise
                    self._restart()
            yield runners

    def _restart(self) -> None:
        """Start over with a new zygote, after one was lost."""
        self._refuse_if_closed()
        for runner in self._spares:
            runner.close()
        self._spares.clear()
        self._zygote.close()
        self._zygote = self._start_zygote()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RunnerLost("the evaluator was closed; what it judged at that time has no verdict")

    # Judging

    @_again_if_lost
    def verify(self, source: str, *, seed: int | None = None, stages: Sequence[Stage] | None = None) -> Verdict:
        """Judge whether a candidate is right.

        Args:
            source: The text of a kernel.py.
            seed: Of all inputs; a random one when None.  It is kept in the verdict's details.
            stages: The stages to run; all when None.
        """
        with self._runners(self._runner_count) as runners:
            return self._verify(runners, source, _new_seed(seed), stages)[0]

    @_again_if_lost
    def evaluate(
        self,
        source: str,
        *,
        incumbent: str | None = None,
        seed: int | None = None,
        compiled: bool = False,
        stages: Sequence[Stage] | None = None,
        allow: Collection[str] = (),
    ) -> Evaluation:
        """Verify a candidate and, if it is right, time it beside the incumbent and PyTorch.

        Args:
            source: The text of the candidate's kernel.py.
            incumbent: The text of the best kernel so far; None for the first one.
            seed: Of all inputs; a random one when None.
            compiled: Time ``torch.compile`` of PyTorch's baseline too.
            stages: The verification stages to run before; all when None.
            allow: Kinds of findings that do not reject this candidate, beside those of the settings.
        """
        begin = time.perf_counter()
        seed = _new_seed(seed)
        with self._runners(self._runner_count) as runners:
            verdict, trial = self._verify(runners, source, seed, stages, allow)
            if trial is None or not verdict.accepted:
                return Evaluation(verdict=verdict, seconds=time.perf_counter() - begin)
            verdict, measurement = self._measure(trial, verdict, incumbent, derived_seed(seed, "time"), compiled, allow)
        confirmation = None
        if measurement is not None and self._is_promising(measurement):
            verdict, confirmation = self._confirm(source, verdict, incumbent, derived_seed(seed, "confirm"), allow)
        return Evaluation(
            verdict=verdict,
            measurement=measurement,
            confirmation=confirmation,
            seconds=time.perf_counter() - begin,
        )

    @_again_if_lost
    def measure(
        self, source: str, *, incumbent: str | None = None, seed: int | None = None, compiled: bool = False
    ) -> Measurement:
        """Time a kernel without verifying it first.

        Raises:
            UsageError: It cannot be loaded or timed; the message says why.
        """
        with self._runners(1) as (runner,):
            answer = self._load(runner, "candidate", source)
            trial = Trial(runner, self.spec, self.device.torch_name, answer["backend"])
            if trial.interpreted:
                raise UsageError("a Triton kernel on a CPU runs in the interpreter, whose time is no speed; use a GPU")
            try:
                measurement = self._time(trial, incumbent, _new_seed(seed), compiled)
            except (RunnerDied, TimingFailed) as error:
                raise UsageError(f"the kernel cannot be timed: {error}") from None
            if trial.findings:
                finding = next(iter(trial.findings.values()))
                raise UsageError(f"the kernel's times cannot be trusted: {finding.kind}: {finding.evidence}")
            return measurement

    def _is_promising(self, measurement: Measurement) -> bool:
        ratio = measurement.speedups.get("incumbent")
        return ratio is not None and ratio.low >= self.settings.promising

    def _verify(
        self,
        runners: Sequence[Runner],
        source: str,
        seed: int,
        only: Sequence[Stage] | None,
        allow: Collection[str] = (),
    ) -> tuple[Verdict, Trial | None]:
        with device_lock(self.device) if self.device.is_gpu else contextlib.nullcontext():
            verdict, trial = verification.verify(
                runners,
                source,
                self.spec,
                device=self.device.torch_name,
                seed=seed,
                dtype=self.dtype,
                only=only,
                allow=(*self.settings.allow, *allow),
                large=self.device.is_gpu if self.settings.large is None else self.settings.large,
                needed=self._needed,
                timed=[case.case for case in self.timing_cases],
                progress=self._progress,
            )
        self._refuse_if_closed()
        if self._sanitizer and verdict.accepted:
            verdict = self._sanitized(verdict, source)
        details = {"seed": seed, "isolation": self._zygote.level, **runners[0].facts, **_harness_facts()}
        return dataclasses.replace(verdict, device=str(self.device), details=details), trial

    def _sanitized(self, verdict: Verdict, source: str) -> Verdict:
        found = tuple(
            sanitize.findings(
                source,
                self.spec,
                self.reference,
                device=self.device.torch_name,
                level=self._zygote.level,
                limits=self.settings.limits,
                sanitizer=self._sanitizer,
                dtype=self.dtype,
            )
        )
        return _rejected(verdict, found) if found else verdict

    # Timing

    def _load(self, runner: Runner, role: str, source: str) -> dict[str, Any]:
        request = verification.load_request(self.spec, role, source, self._needed)
        try:
            answer = runner.ask(request, seconds=self.settings.limits.load_seconds, doing=f"importing the {role}")
        except RunnerDied as died:
            raise UsageError(f"the {role} cannot be loaded: {died}") from None
        if not answer["ok"]:
            raise UsageError(f"the {role} cannot be loaded: {answer['error']}")
        return answer

    def _time(self, trial: Trial, incumbent: str | None, seed: int, compiled: bool) -> Measurement:
        runner = trial.runner
        roles = ["candidate"]
        if incumbent is not None:
            self._load(runner, "incumbent", incumbent)
            roles.append("incumbent")
        runner.ask(
            {"op": "baseline", "reference": self.reference, "compiled": compiled},
            seconds=self.settings.limits.timing_seconds,
            doing="loading PyTorch's baseline",
        )
        roles += ["pytorch", "compile"] if compiled else ["pytorch"]
        with device_lock(self.device):
            return paired.measure(
                trial,
                self.spec,
                self.timing_cases,
                roles,
                seed=seed,
                roofline=self._device_roofline(),
                settings=self.settings.timing,
            )

    def _device_roofline(self) -> Roofline | None:
        if self._roofline is None and self.settings.roofline:
            self._roofline = roofline(self.device)
        return self._roofline

    def _measure(
        self,
        trial: Trial,
        verdict: Verdict,
        incumbent: str | None,
        seed: int,
        compiled: bool,
        allow: Collection[str] = (),
    ) -> tuple[Verdict, Measurement | None]:
        known = set(trial.findings)
        measurement = None
        try:
            if self._progress:
                self._progress({"stage": "timing", "case": self.timing_cases[0].label, "status": "start"})
            measurement = self._time(trial, incumbent, seed, compiled)
            trial.inspect()
        except (RunnerDied, TimingFailed) as error:
            trial.add_finding("failed_when_timed", str(error))
        for finding in (*integrity.floods(trial.runner), *integrity.still_running(trial)):
            trial.add_finding(finding.kind, finding.evidence)
        self._refuse_if_closed()
        new = tuple(
            finding for key, finding in trial.findings.items() if key not in known and finding.kind not in allow
        )
        if new:
            return _rejected(verdict, new), measurement
        return verdict, measurement

    def _confirm(
        self, source: str, verdict: Verdict, incumbent: str | None, seed: int, allow: Collection[str] = ()
    ) -> tuple[Verdict, Measurement | None]:
        """Time once more in a new process, so that one process's memory layout cannot decide."""
        with self._runners(1) as (runner,):
            answer = self._load(runner, "candidate", source)
            trial = Trial(runner, self.spec, self.device.torch_name, answer["backend"])
            return self._measure(trial, verdict, incumbent, seed, False, allow)

    def close(self) -> None:
        """End the zygote and all runners; a call that is under way in another thread raises `RunnerLost`."""
        self._closed = True
        self._zygote.close()
        with self._lock:
            for runner in self._spares:
                runner.close()
            self._spares.clear()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _rejected(verdict: Verdict, findings: tuple[Finding, ...]) -> Verdict:
    return dataclasses.replace(verdict, accepted=False, findings=(*verdict.findings, *findings))


def _new_seed(seed: int | None) -> int:
    return secrets.randbits(48) if seed is None else seed


def _default_timing_case(evaluator: Evaluator) -> TimingCase:
    spec = evaluator.spec
    shapes = spec.timing_shapes if evaluator.device.is_gpu else spec.cpu_timing_shapes or spec.timing_shapes
    if not shapes:
        shapes = [max((*spec.shapes, *spec.large_shapes), key=lambda shape: _volume(shape))]
    return TimingCase(shape=shapes[0], dtype=evaluator.dtype)


def _volume(shape: Any) -> int:
    volume = 1
    for size in shape.values():
        volume *= size
    return volume


@contextlib.contextmanager
def _half_of_the_cores() -> Iterator[None]:
    """Leave half of the cores to the runner, which works at the same time.

    Threads of PyTorch spin while they wait for one that has no core; with all cores, the judge took
    up to five times as long on a busy machine of two.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // 2))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def device_lock(device: Device) -> Iterator[None]:
    """Hold the one lock of a device, so that no two timings on this machine overlap."""
    name = hashlib.sha256(_identity(device).encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"autokernel-device-{os.getuid()}-{name}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _identity(device: Device) -> str:
    """What tells a device from all others of this machine, whatever number CUDA_VISIBLE_DEVICES gives it."""
    unique = getattr(torch.cuda.get_device_properties(device.index), "uuid", "") if device.is_gpu else ""
    return f"{device.kind}:{unique or device.index}"


def _harness_facts() -> dict[str, Any]:
    return {"harness": harness_hash(), "platform": platform.platform()}


_HARNESS: list[str] = []


def harness_hash() -> str:
    """A hash of the files that judge, so that a record says by what it was judged."""
    if not _HARNESS:
        digest = hashlib.sha256()
        root = Path(__file__).parent
        for part in ("verifier", "runner", "ops"):
            for file in sorted((root / part).glob("*.py")):
                digest.update(file.read_bytes())
        for name in ("evaluator.py", "paired.py", "timing.py", "statistics.py"):
            digest.update((root / name).read_bytes())
        _HARNESS.append(digest.hexdigest()[:16])
    return _HARNESS[0]
