"""Run the suite: one runner process for an operation and dtype, verified, then timed configuration by configuration.

A contestant that fails on a configuration, or kills the runner, is left out of it, and said; the
others go on in a new runner.  The timing is that of a candidate's evaluation (`autokernel.paired`).
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autokernel import ops
from autokernel.evaluator import device_lock
from autokernel.hardware import Device, Roofline, detect, roofline
from autokernel.measurement import Measurement
from autokernel.ops.spec import KernelSpec
from autokernel.paired import TimingFailed, TimingSettings, measure
from autokernel.runner.client import Limits, Runner, RunnerDied, Zygote
from autokernel.runner.protocol import ARENA_BYTES
from autokernel.suite.configurations import Configuration
from autokernel.suite.contestants import COMPILE_MODES, Contestant, alternatives, ours
from autokernel.suite.outcome import Outcome
from autokernel.verdict import Stage
from autokernel.verifier import golden, stages
from autokernel.verifier.trial import Trial, derived_seed, explain, make_case_inputs

__all__ = ["SuiteSettings", "bench"]

# Compiling with max-autotune tries dozens of kernels at the first call.
_LIMITS = Limits(load_seconds=90.0, call_seconds=300.0, timing_seconds=300.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    """How the suite is run.

    Attributes:
        seconds: Sampling of a configuration goes on at most so long.
        verify: ``full`` (five stages), ``brief`` (the smoke stage), or ``values`` (nothing but the
            values on each configuration, which are always compared).
        compiled: Time `torch.compile` too.
        compile_mode: Its mode.
        libraries: Time installed libraries too.
        kernels: Texts of kernels to take instead of ours, by operation.
        backend: The only backend to take our kernels from; every usable one when None.
        roofline: Measure the device, so that there are floors.
        seed: Of all inputs.
        limits: What a runner may use.
    """

    seconds: float = 0.5
    verify: str = "brief"
    compiled: bool = True
    compile_mode: str = COMPILE_MODES[1]
    libraries: bool = True
    kernels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    backend: str | None = None
    roofline: bool = True
    seed: int = 0
    limits: Limits = _LIMITS


def bench(
    configurations: Sequence[Configuration],
    *,
    device: str = "auto",
    settings: SuiteSettings | None = None,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Outcome]:
    """Time the configurations one after another, and yield each one's outcome as soon as it is there.

    Args:
        configurations: From `select`; those of one operation and dtype should stand together.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        settings: How.
        progress: Told what is being done.

    Raises:
        DeviceUnavailable: The device is not there.
        UsageError: An operation has no kernel for the device.
    """
    settings = settings or SuiteSettings()
    found = detect(device)
    tell = progress or (lambda _text: None)
    peaks = roofline(found) if settings.roofline else None
    with Zygote(found.torch_name) as zygote:
        for (operation, dtype), group in itertools.groupby(
            configurations, key=lambda one: (one.operation, one.case.dtype)
        ):
            field = _Field(operation, dtype, found, zygote, peaks, settings, tell)
            try:
                for configuration in group:
                    yield field.outcome(configuration)
            finally:
                field.close()


class _Unusable(Exception):
    """A contestant cannot be used in this configuration; ``args`` are its name and the reason."""


class _Field:
    """The contestants of an operation and dtype, loaded in one runner."""

    def __init__(
        self,
        operation: str,
        dtype: str,
        device: Device,
        zygote: Zygote,
        peaks: Roofline | None,
        settings: SuiteSettings,
        tell: Callable[[str], None],
    ) -> None:
        self.spec: KernelSpec = ops.get(operation)
        self.dtype, self.device, self.zygote = dtype, device, zygote
        self.peaks, self.settings, self.tell = peaks, settings, tell
        usable = ("triton", "cuda") if device.is_gpu else ("cpp",)
        backends = usable if settings.backend is None else (settings.backend,)
        own = ours(operation, backends, dict(settings.kernels))
        others, self.absent = alternatives(
            operation, compiled=settings.compiled, mode=settings.compile_mode, libraries=settings.libraries
        )
        self.candidate: Contestant = own[0]
        self.rivals = {one.name: one for one in (*own[1:], *others)}
        self.rejected: str | None = None  # not verified yet
        self.runner: Runner | None = None
        self.trial: Trial | None = None
        self.loaded: set[str] = set()

    def outcome(self, configuration: Configuration) -> Outcome:
        begin = time.perf_counter()
        facts: dict[str, Any] = {
            "operation": self.spec.name,
            "label": configuration.case.label,
            "kernel": self.candidate.what,
            "verified": self.settings.verify,
        }
        absent = dict(self.absent)
        try:
            values = self._measured(configuration, absent)
        except (RunnerDied, TimingFailed) as error:
            self.close()
            values = {"status": "failed", "reason": str(error)}
        return Outcome(**facts, **values, absent=absent, seconds=time.perf_counter() - begin)

    def _measured(self, configuration: Configuration, absent: dict[str, str]) -> dict[str, Any]:
        """The rest of an outcome; contestants that cannot be used are added to ``absent``."""
        while True:
            names = [name for name in self.rivals if name not in absent]
            try:
                trial = self._trial()
                if self.rejected:
                    return {"status": "rejected", "reason": self.rejected}
                inaccurate = self._compared(trial, configuration, names)
                self.tell(f"{configuration.label}: timing {', '.join(['ours', *names])}")
                return self._timed(trial, configuration, names, inaccurate)
            except _Unusable as unusable:
                name, reason = unusable.args
                absent[name] = reason

    def _trial(self) -> Trial:
        """The trial of our kernel in a runner that is up, verified once."""
        if self.trial is not None:
            return self.trial
        self.runner = self.zygote.spawn(self.settings.limits)
        self.runner.wait_ready()
        self.tell(f"{self.spec.name} {self.dtype}: verifying our kernel")
        only: list[Stage] | None = [Stage.SMOKE] if self.settings.verify != "full" or self.rejected == "" else None
        with device_lock(self.device):
            verdict, trial = stages.verify(
                [self.runner],
                self.candidate.source,
                self.spec,
                device=self.device.torch_name,
                seed=derived_seed(self.settings.seed, "verify"),
                dtype=self.dtype,
                only=only,
            )
        self.rejected = "" if verdict.accepted else verdict.reason or verdict.error
        self.trial = trial
        if trial is None:
            raise TimingFailed(self.rejected or "our kernel cannot be loaded")
        return trial

    def _compared(self, trial: Trial, configuration: Configuration, names: Sequence[str]) -> dict[str, str]:
        """Load the contestants, compare each one's values on the configuration, and say which are off."""
        case = configuration.case.case
        inputs = make_case_inputs(self.spec, case, derived_seed(self.settings.seed, case.label), trial.device)
        expected = golden.golden(self.spec, case, inputs)
        inaccurate = {}
        for name in names:
            self.tell(f"{configuration.label}: first call of {self.rivals[name].what}")
            try:
                self._load(trial, name)
                problem = self._problem(trial, name, configuration, inputs, expected)
            except RunnerDied as died:
                self.close()
                raise _Unusable(name, str(died)) from None
            if problem:
                inaccurate[name] = problem
        return inaccurate

    def _load(self, trial: Trial, name: str) -> None:
        if name in self.loaded:
            return
        request = stages.load_request(self.spec, name, self.rivals[name].source)
        answer = trial.runner.ask(request, seconds=self.settings.limits.load_seconds, doing=f"importing {name}")
        if not answer["ok"]:
            raise _Unusable(name, str(answer["error"])[:300])
        self.loaded.add(name)

    def _problem(
        self, trial: Trial, name: str, configuration: Configuration, inputs: Sequence[Any], expected: golden.Golden
    ) -> str:
        """Call a contestant once; return how its values are off, or nothing."""
        described, free = trial.put_sets([inputs])
        place = {"offset": free, "capacity": ARENA_BYTES - free}
        # Not observed, as a candidate's calls are: torch.compile writes files and starts compilers.
        request = {
            "op": "endure", "role": name, "sets": described, "options": dict(configuration.case.options),
            "calls": 1, "seconds": 0.0, "out": [place],
        }  # fmt: skip
        answer = trial.runner.ask(request, seconds=self.settings.limits.call_seconds, doing=f"calling {name}")
        if not answer["ok"]:
            raise _Unusable(name, str(answer["error"])[:300])
        facts = answer["outputs"][0]
        output = trial.take(facts, place)[0] if "dtype" in facts else None
        if output is None or output.shape != expected.value.shape:
            raise _Unusable(name, "it returned no tensor of the right shape")
        comparison = golden.compare(output, expected)
        return "" if comparison.agrees else explain(comparison)

    def _timed(
        self, trial: Trial, configuration: Configuration, names: Sequence[str], inaccurate: Mapping[str, str]
    ) -> dict[str, Any]:
        known = set(trial.findings)
        with device_lock(self.device):
            measurement = measure(
                trial,
                self.spec,
                [configuration.case],
                ["candidate", *names],
                seed=derived_seed(self.settings.seed, configuration.label),
                roofline=self.peaks,
                settings=TimingSettings(seconds=self.settings.seconds),
            )
        found = [finding for key, finding in trial.findings.items() if key not in known]
        if found:
            self.close()  # what was found must not count against the next configuration
            return {"status": "rejected", "reason": "; ".join(f"{one.kind}: {one.evidence}" for one in found)}
        return {"status": "measured", "inaccurate": inaccurate, **_figures(measurement)}

    def close(self) -> None:
        """End the runner; the next configuration starts a new one."""
        if self.runner is not None:
            self.runner.close()
        self.runner, self.trial = None, None
        self.loaded.clear()


def _figures(measurement: Measurement) -> dict[str, Any]:
    case = measurement.cases[0]
    return {
        "method": case.method,
        "latency_us": {name: one.latency_us for name, one in case.contestants.items()},
        "call_us": {name: one.call_us for name, one in case.contestants.items()},
        "speedups": dict(case.speedups),
        "floor_us": case.floor_us,
        "notes": (*measurement.notes, *(["the clocks fell during the samples"] if measurement.throttled else [])),
    }
