"""What a profile says: the targets with their shares, floors and gains, the totals, and what-ifs.

Shares are of the device's time in one pass, and add up to 1 with what is unclaimed.  The wall time of a
pass is the device's busy time plus the time that the host makes it wait.

    ceiling = 1 / (1 - share)                       the operation for free
    gain    = 1 / (1 - share + share * floor/time)  the operation at its floor

Source: G. Amdahl, Validity of the single processor approach, AFIPS 1967.  Units: microseconds, bytes, FLOP.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.profiling.targets import Layout, Site, Target, Variant, layout_from, target_data, target_from

if TYPE_CHECKING:
    from autokernel.campaign_plan import CampaignTarget
    from autokernel.profiling.subject import Subject

__all__ = ["Layout", "ProfileReport", "Site", "Target", "Totals", "Variant", "WhatIf"]

_FORMAT = 1  # raise when the JSON changes in a way that an older reader misreads


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totals:
    """Where the time of one pass goes.

    Attributes:
        wall_us: One undisturbed pass by the clock, the median of several.
        device_us: Sum of all device work; more than ``busy_us`` where kernels overlap.
        busy_us: The device was at work.
        host_us: The device waited for the host: launching, Python, views and allocations.
        recognised_us: Device time in the nine operations.
        listed_us: Device time in other operators, and in the backward pass.
        unclaimed_us: Device time that belongs to no recorded operator.
    """

    wall_us: float
    device_us: float
    busy_us: float
    host_us: float
    recognised_us: float
    listed_us: float
    unclaimed_us: float

    @property
    def explained(self) -> float:
        """Share of the device time that belongs to an operator with a place in the model, 0 to 1."""
        return 1.0 - self.unclaimed_us / self.device_us if self.device_us else 1.0


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """The device time of one pass if some targets were faster."""

    device_us: float
    speedup: float
    saved_us: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileReport:
    """The profile of one model on one device.

    Attributes:
        model: Class of the model.
        device: What `autokernel.hardware.Device.to_dict` says of it.
        inputs: The input tensors.
        training: The model was in training mode.
        backward: Each pass had a backward pass.
        targets: In the order to work in: most recoverable time first.
        totals: Where the time goes.
        passes: Passes of the model that were made.
        seconds: How long profiling took.
        notes: What a reader has to know: passes that differ, inputs that the model changes, a busy device.
        aligned: Times come from passes that recording did not disturb.
        peak_memory_bytes: Most device memory in use during a pass; 0 on a CPU.
        parameters: Number of parameters.
        roofline: Measured figures that the floors come from, or None.
    """

    model: str
    device: Mapping[str, Any]
    inputs: tuple[Layout, ...]
    training: bool
    backward: bool
    targets: tuple[Target, ...]
    totals: Totals
    passes: int
    seconds: float
    notes: tuple[str, ...] = ()
    aligned: bool = True
    peak_memory_bytes: int = 0
    parameters: int = 0
    roofline: Mapping[str, Any] | None = None
    subject: Subject | None = dataclasses.field(default=None, compare=False, repr=False)

    def target(self, name: str) -> Target:
        """The target of that name.

        Raises:
            UsageError: There is none; the message names some.
        """
        for target in self.targets:
            if target.name == name:
                return target
        hint = did_you_mean(name, [target.name for target in self.targets])
        known = ", ".join(target.name for target in self.targets[:12])
        raise UsageError(f"the profile has no target {name!r}{hint}; it has: {known}")

    def operation(self, kind: str) -> tuple[Target, ...]:
        """All targets of one operation, such as ``matmul``."""
        return tuple(target for target in self.targets if target.operation == kind)

    @property
    def plan(self) -> tuple[Target, ...]:
        """The targets that shipped operations cover, in the order to work in."""
        return tuple(target for target in self.targets if target.offered)

    @property
    def covered_us(self) -> float:
        """Device time of the calls that a kernel for a shipped operation can take."""
        return sum(one.device_us for target in self.plan for one in target.variants if one.covered)

    def campaign_targets(
        self,
        names: Sequence[str] | None = None,
        *,
        most: int | None = None,
        least_share: float = 0.01,
        backend: str = "auto",
    ) -> list[CampaignTarget]:
        """Targets as a campaign takes them: share, sizes weighted by their time, and what their floors allow.

        A share is that of the calls which the operation covers, in the dtype with most time.  A target is
        timed on its four sizes with most time; its ceiling is known where the floors of all sizes bind.

        Args:
            names: Which, in that order; by default the `plan`.
            most: Of the plan, take so many.
            least_share: Of the plan, leave out what takes less than this fraction of the device time.
            backend: That their kernels are written in.

        Raises:
            UsageError: One is not there, or no shipped operation covers it, or none is left.
        """
        from autokernel.profiling.planning import campaign_targets

        return campaign_targets(self, names, most=most, least_share=least_share, backend=backend)

    def what_if(self, speedups: Mapping[str, float | str]) -> WhatIf:
        """Predict the device time if targets were faster (Amdahl).

        Args:
            speedups: By name of a target, or of an operation for all its targets: a factor above 0 (2.0:
                half the time), ``"floor"`` or ``"free"``.

        Raises:
            UsageError: An unknown name, a factor that is not above 0, or a target that is named twice.
        """
        saved, seen = 0.0, set()
        for name, factor in speedups.items():
            chosen = self.operation(name) or (self.target(name),)
            for target in chosen:
                if target.name in seen:
                    raise UsageError(f"{target.name} is named twice in the what-if; name the operation or the target")
                seen.add(target.name)
                saved += _saved_us(target, factor)
        device_us = max(0.0, self.totals.device_us - saved)
        speedup = self.totals.device_us / device_us if device_us else math.inf
        return WhatIf(device_us, speedup, saved)

    def capture(self, what: str, file: str | Path) -> Path:
        """Write a `KernelSpec` file for a module of the model, so that it can be optimised as a whole.

        Args:
            what: Path of a module, or the name of a target (then the first module that calls it).
            file: Where to; ``autokernel new --spec FILE --from kernel.py`` takes it.

        Raises:
            UsageError: The report was loaded from a file and has no model, or the module cannot be captured.
        """
        from autokernel.profiling.capture import capture

        if self.subject is None:
            raise UsageError("this report has no model to capture from; profile the model in this process")
        path = what
        for target in self.targets:
            if target.name == what and target.paths:
                path = target.paths[0]
        return capture(self.subject, path, file)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data, derived figures included."""
        data = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("subject", "targets", "totals", "inputs")
        }
        data["format"] = _FORMAT
        data["device"], data["notes"] = dict(self.device), list(self.notes)
        data["inputs"] = [dataclasses.asdict(one) for one in self.inputs]
        data["totals"] = {
            **dataclasses.asdict(self.totals),
            "explained": self.totals.explained,
            "covered_us": self.covered_us,
        }
        data["targets"] = [target_data(target) for target in self.targets]
        return data

    def save(self, file: str | Path) -> Path:
        """Write `to_dict` as JSON; `load` reads it back."""
        path = Path(file)
        path.write_text(json.dumps(_finite(self.to_dict()), indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, file: str | Path) -> ProfileReport:
        """Read a report that `save` wrote; it has no model to capture from.

        Raises:
            UsageError: The file is missing or no such report.
        """
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
            if data.pop("format") != _FORMAT:
                raise UsageError(f"{file} was written by another version of AutoKernel; profile again")
            data["inputs"] = tuple(layout_from(one) for one in data["inputs"])
            data["targets"] = tuple(target_from(one) for one in data["targets"])
            for derived in ("explained", "covered_us"):
                data["totals"].pop(derived, None)
            data["totals"] = Totals(**data["totals"])
            data["notes"] = tuple(data["notes"])
            return cls(**data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"cannot read the profile {str(file)!r}: {error}; write one with `profile --json`"
            ) from None


def _saved_us(target: Target, factor: float | str) -> float:
    if factor == "free":
        return target.device_us
    if factor == "floor":
        return target.recoverable_us
    if isinstance(factor, (str, bool)) or not factor > 0:
        raise UsageError(f"the speedup of {target.name} is {factor!r}; give a number above 0, 'floor' or 'free'")
    return target.device_us * (1 - 1 / factor)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_finite(value) for value in data]
    return data
