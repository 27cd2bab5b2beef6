"""The least time that a device needs for given work, and where a kernel stands against it.

    time >= max(bytes / bandwidth, flops / rate)

with the measured figures.  On a CPU, and for data that fits in a GPU's L2, the bytes need not come from
memory at all: then the floor by bandwidth is no bound, and `Roofline.in_cache` says so.

Source: S. Williams, A. Waterman and D. Patterson, Roofline, Communications of the ACM 52(4), 2009.
Units: FLOP, bytes, microseconds, GB/s, TFLOP/s.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from autokernel.hardware.datasheets import Datasheet, datasheet
from autokernel.hardware.detect import Device, detect
from autokernel.hardware.measure import MeasuredPeaks, measure

if TYPE_CHECKING:
    import torch

__all__ = ["Roofline", "roofline"]


@dataclasses.dataclass(frozen=True)
class Roofline:
    """A device's roofline.

    Attributes:
        device: The device.
        measured: Its measured peaks; floors come from these.
        sheet: Its data sheet, or None.
    """

    device: Device
    measured: MeasuredPeaks
    sheet: Datasheet | None = None

    @property
    def bandwidth_gb_per_s(self) -> float:
        """The measured bandwidth, the higher of copy and read."""
        return self.measured.bandwidth_gb_per_s

    @property
    def cache_bytes(self) -> int:
        """The largest cache in front of the memory; 0 if unknown."""
        return max(self.device.cache_bytes, self.sheet.memory_cache_bytes if self.sheet else 0)

    def in_cache(self, bytes_moved: float) -> bool:
        """True if that much data can stay in the cache, so that memory bandwidth does not bound its use."""
        return bytes_moved <= self.cache_bytes

    def rate_tflop_per_s(self, dtype: str, *, tf32: bool = True) -> float | None:
        """The measured matrix rate for a dtype, or None where the device multiplies no such matrices.

        Args:
            dtype: ``float32``, ``float16``, ``bfloat16`` or ``tf32``.
            tf32: For ``float32``, count the TF32 units too: a kernel may use them, and three TF32
                products even reach float32 accuracy, so the IEEE rate alone bounds nothing.
        """
        return _rate(self.measured.tflop_per_s, dtype, tf32)

    def floor_us(self, flops: float, bytes_moved: float, dtype: str, *, tf32: bool = True) -> float:
        """The least time for the work by the measured figures.

        Args:
            flops: Floating-point operations of one call; 0 if unknown.
            bytes_moved: Least bytes to and from memory.
            dtype: The dtype that is multiplied in; one without a measured rate is not bounded by flops.
            tf32: As for `rate_tflop_per_s`.

        See `in_cache` for when this is no bound.
        """
        rate = self.rate_tflop_per_s(dtype, tf32=tf32)
        return _floor_us(flops, bytes_moved, self.bandwidth_gb_per_s, rate)

    def peak_floor_us(self, flops: float, bytes_moved: float, dtype: str) -> float:
        """The least time by the higher of measured and data-sheet figures: below it a time is not believable.

        Without a data sheet this equals `floor_us`, which good code can beat by some percent.
        """
        bandwidth, rate = self.bandwidth_gb_per_s, self.rate_tflop_per_s(dtype)
        if self.sheet is not None:
            bandwidth = max(bandwidth, self.sheet.bandwidth_gb_per_s)
            sheet_rate = _rate(self.sheet.tflop_per_s, dtype, True)
            rate = max(rate, sheet_rate) if rate and sheet_rate else None
        return _floor_us(flops, bytes_moved, bandwidth, rate)

    def ridge_flop_per_byte(self, dtype: str) -> float | None:
        """The arithmetic intensity above which a kernel is bound by the rate, or None without a rate."""
        rate = self.rate_tflop_per_s(dtype)
        return None if rate is None else rate * 1e3 / self.bandwidth_gb_per_s

    def bound(self, flops: float, bytes_moved: float, dtype: str) -> str:
        """``memory`` or ``compute``: which of the two makes up the floor."""
        ridge = self.ridge_flop_per_byte(dtype)
        return "compute" if ridge is not None and flops > ridge * bytes_moved else "memory"

    def to_dict(self) -> dict[str, Any]:
        """The roofline as JSON-ready data."""
        return {
            "device": self.device.to_dict(),
            "measured": self.measured.to_dict(),
            "datasheet": None if self.sheet is None else self.sheet.to_dict(),
            "cache_bytes": self.cache_bytes,
        }


def roofline(device: str | torch.device | Device = "auto") -> Roofline:
    """Detect a device, measure it unless its figures are cached, and return its roofline.

    Raises:
        DeviceUnavailable: The device is not there.
    """
    device = detect(device)
    return Roofline(device, measure(device), datasheet(device))


def _rate(rates: Any, dtype: str, tf32: bool) -> float | None:
    names = ("float32", "tf32") if dtype == "float32" and tf32 else (dtype,)
    return max((rates[name] for name in names if name in rates), default=None)


def _floor_us(flops: float, bytes_moved: float, bandwidth_gb_per_s: float, rate_tflop_per_s: float | None) -> float:
    by_bandwidth = bytes_moved / (bandwidth_gb_per_s * 1e3)
    by_rate = flops / (rate_tflop_per_s * 1e6) if rate_tflop_per_s else 0.0
    return max(by_bandwidth, by_rate)
