"""How fast a candidate was beside its rivals: plain data, written as JSON and read back.

One `Measurement` holds, for each timing case, the samples of every contestant, all taken
interleaved in one process, and the ratios with their confidence intervals.  How the samples are
taken is the timing's business; what follows from them, the policy's.

Units: microseconds, TFLOP/s, GB/s (10^9 bytes), MB (10^6 bytes).  A ratio above 1 means that the
candidate is faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["CaseTiming", "Contestant", "Measurement", "Ratio"]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A speedup with its 95 % bootstrap confidence interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contestant:
    """One kernel's time on one timing case.

    Attributes:
        name: ``candidate``, ``incumbent``, ``pytorch`` or ``compile``.
        latency_us: Median time of one call on the device (graph replay on a GPU, wall clock on a CPU).
        low_us: 0.2 quantile.
        high_us: 0.8 quantile.
        call_us: Median time that a caller sees, launches included; equals ``latency_us`` on a CPU.
        samples_us: Every sample of ``latency_us``, in the order in which they were taken.
    """

    name: str
    latency_us: float
    low_us: float
    high_us: float
    call_us: float
    samples_us: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseTiming:
    """One timing case.

    Attributes:
        label: The case in one line.
        weight: Its weight among the timing cases.
        method: ``graph`` (CUDA graph replay), ``events`` (device events) or ``wall`` (CPU).
        contestants: By name; ``candidate`` is always there.
        speedups: Ratio of each other contestant's time to the candidate's, by its name.
        floor_us: The least time that the device's measured bandwidth and rate allow, or None.
        tflop_per_s: Of the candidate, or None if the spec gives no FLOP.
        gb_per_s: Of the candidate.
        fraction_of_peak: Floor over latency, 0 to 1, or None.
    """

    label: str
    weight: float
    method: str
    contestants: Mapping[str, Contestant]
    speedups: Mapping[str, Ratio]
    floor_us: float | None = None
    tflop_per_s: float | None = None
    gb_per_s: float | None = None
    fraction_of_peak: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """A candidate's paired timing over all timing cases.

    Attributes:
        cases: One entry for each timing case.
        speedups: Weighted over the cases, by contestant (``incumbent``, ``pytorch``, ``compile``).
        worst_case: The case with the smallest speedup over the incumbent, as (label, ratio), or None.
        peak_memory_mb: Most device memory that a call held beyond its inputs (resident set on a CPU).
        seconds: What the measurement took.
        throttled: True if the device's clocks fell during the measurement.
        notes: Facts that a reader must know, such as why no graph could be captured.
    """

    cases: tuple[CaseTiming, ...]
    speedups: Mapping[str, Ratio]
    worst_case: tuple[str, Ratio] | None = None
    peak_memory_mb: float = 0.0
    seconds: float = 0.0
    throttled: bool = False
    notes: tuple[str, ...] = ()

    @property
    def latency_us(self) -> float:
        """The candidate's latency on the first timing case."""
        return self.cases[0].contestants["candidate"].latency_us

    def to_dict(self) -> dict[str, Any]:
        """The measurement as JSON-ready data, samples included."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """Read back what `to_dict` made."""
        cases = tuple(
            CaseTiming(
                **{
                    **case,
                    "contestants": {
                        name: Contestant(**{**value, "samples_us": tuple(value["samples_us"])})
                        for name, value in case["contestants"].items()
                    },
                    "speedups": {name: Ratio(**ratio) for name, ratio in case["speedups"].items()},
                }
            )
            for case in data["cases"]
        )
        worst = data.get("worst_case")
        return cls(
            cases=cases,
            speedups={name: Ratio(**ratio) for name, ratio in data["speedups"].items()},
            worst_case=None if worst is None else (worst[0], Ratio(**worst[1])),
            peak_memory_mb=data["peak_memory_mb"],
            seconds=data["seconds"],
            throttled=data["throttled"],
            notes=tuple(data["notes"]),
        )
