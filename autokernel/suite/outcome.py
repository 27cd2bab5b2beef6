"""What came of a configuration: plain data, written as JSON."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from typing import Any

from autokernel.hardware import Device
from autokernel.measurement import Ratio

__all__ = ["Outcome", "document"]

_PACKAGES = ("torch", "triton", "liger-kernel", "quack-kernels", "autokernel")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One configuration's figures, or why there are none.

    Attributes:
        operation: Its name.
        label: Sizes, dtype, layout and options in one line.
        status: ``measured``, ``rejected`` (our kernel is wrong) or ``failed`` (it could not be timed).
        reason: Why it was not measured.
        kernel: What our kernel is.
        verified: How it was verified: ``full``, ``brief``, or ``values`` (on this configuration alone).
        method: ``graph``, ``events`` or ``wall``.
        latency_us: Median GPU time of a call (wall time on a CPU), by contestant; ``candidate`` is ours.
        call_us: Median time that a caller sees, launches included.
        speedups: Each other contestant's time over ours, with a 95 % interval.
        floor_us: The least time by measured bandwidth and rate, or None.
        inaccurate: Contestants whose values are not within the verifier's bound, with the reason.
        absent: Contestants that were not timed, with the reason.
        notes: What a reader must know besides.
        seconds: What the configuration took.
    """

    operation: str
    label: str
    status: str
    reason: str = ""
    kernel: str = ""
    verified: str = ""
    method: str = ""
    latency_us: Mapping[str, float] = dataclasses.field(default_factory=dict)
    call_us: Mapping[str, float] = dataclasses.field(default_factory=dict)
    speedups: Mapping[str, Ratio] = dataclasses.field(default_factory=dict)
    floor_us: float | None = None
    inaccurate: Mapping[str, str] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ours_us(self) -> float | None:
        """The time of the faster of our kernels."""
        times = [self.latency_us[name] for name in ("candidate", "cuda", "triton") if name in self.latency_us]
        return min(times, default=None)

    @property
    def share_of_floor(self) -> float | None:
        """Floor over the time of our first kernel, or None."""
        own = self.latency_us.get("candidate")
        return None if own is None or self.floor_us is None else self.floor_us / own

    @property
    def best_alternative(self) -> tuple[str, Ratio] | None:
        """The fastest contestant that is not ours and computes the right values, and its time over ours."""
        names = set(self.speedups) - {"cuda", "triton"} - set(self.inaccurate)
        return min(((name, self.speedups[name]) for name in names), key=lambda one: one[1].value, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON-ready data."""
        best = self.best_alternative
        return {
            **dataclasses.asdict(self),
            "share_of_floor": self.share_of_floor,
            "best_alternative": None if best is None else {"name": best[0], "speedup": dataclasses.asdict(best[1])},
        }


def document(outcomes: Iterable[Outcome], device: Device) -> dict[str, Any]:
    """All outcomes with what a published figure must carry: device, versions, date."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": device.to_dict(),
        "versions": {"python": platform.python_version(), **versions},
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "outcomes": [outcome.to_dict() for outcome in outcomes],
    }
