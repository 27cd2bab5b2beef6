"""What the machine is, what its data sheet promises, and what was measured on it.

    device = detect("auto")              # NVIDIA, AMD or CPU, in one dataclass
    sheet = datasheet(device)            # the vendor's peaks, or None for a device that is not listed
    peaks = measure(device)              # bandwidth and matrix rate, measured once and cached on disk
    floor = roofline(device).floor_us(flops, bytes_moved, "float16")

Nothing here imports torch before it is called, so importing is quick.

Units: bytes, microseconds, GB/s (10^9 bytes), TFLOP/s (10^12).
"""

from __future__ import annotations

from autokernel.hardware.datasheets import DATASHEETS, Datasheet, datasheet
from autokernel.hardware.detect import Device, detect
from autokernel.hardware.measure import MeasuredPeaks, cache_file, measure
from autokernel.hardware.roofline import Roofline, roofline

__all__ = [
    "DATASHEETS",
    "Datasheet",
    "Device",
    "MeasuredPeaks",
    "Roofline",
    "cache_file",
    "datasheet",
    "detect",
    "measure",
    "roofline",
]
