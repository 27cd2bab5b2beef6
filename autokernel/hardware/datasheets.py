"""The vendors' peaks: one entry per card, each with its source; a card that is not listed has none.

Rates are dense (vendors also print twice the figure, for 2:4 sparse matrices) and are those of the
matrix units with float32 accumulation; for ``float32`` the higher of vector and matrix rate.  The
bandwidth is that of the device memory.  On consumer cards float16 with float16 accumulation runs at
twice the rate given here.

An entry fits a device when the whole name fits and, where the entry states it, the number of
multiprocessors too: a MIG slice, a compute partition or a cut-down card with a known name does not
pass for the whole card.

Units: GB/s (10^9 bytes), TFLOP/s (10^12), bytes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from autokernel.hardware.detect import Device

__all__ = ["DATASHEETS", "Datasheet", "datasheet"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Datasheet:
    """A card's peaks.

    Attributes:
        card: The card's name, form factor included.
        names: Regular expression for the whole device name as PyTorch gives it, vendor left out.
        bandwidth_gb_per_s: Peak of the device memory.
        tflop_per_s: Dense peak by dtype: ``float32``, ``tf32``, ``float16``, ``bfloat16``, ``float8``.
            A dtype that the hardware has no matrix units for is absent.
        source: The vendor's document.
        units: Multiprocessors or compute units that PyTorch reports, or None where it varies.
        memory_cache_bytes: A cache in front of the memory that PyTorch's ``L2_cache_size`` leaves
            out (AMD's Infinity Cache), or 0.
    """

    card: str
    names: str
    bandwidth_gb_per_s: float
    tflop_per_s: Mapping[str, float]
    source: str
    units: int | None = None
    memory_cache_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON-ready data."""
        return {**dataclasses.asdict(self), "tflop_per_s": dict(self.tflop_per_s)}


def datasheet(device: Device) -> Datasheet | None:
    """Return the entry for a device, or None: no figure stands in for one that is not known.

    >>> datasheet(Device(kind="cuda", name="NVIDIA H100 PCIe", units=114)).bandwidth_gb_per_s
    2039
    >>> datasheet(Device(kind="cuda", name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", units=16)) is None
    True
    """
    if not device.is_gpu:
        return None
    name = re.sub(r"^(NVIDIA|AMD Instinct|AMD)\s+", "", device.name)
    for sheet in DATASHEETS:
        units_fit = sheet.units is None or not device.units or device.units == sheet.units
        if units_fit and re.fullmatch(sheet.names, name):
            return sheet
    return _unnamed_amd(device)


def _unnamed_amd(device: Device) -> Datasheet | None:
    """An AMD GPU without a marketing name: architecture, compute units and memory leave one card, or none."""
    if device.kind != "rocm" or device.name not in (f"AMD {device.arch}", "AMD Radeon Graphics"):
        return None
    memory_gib = round(device.memory_bytes / 2**30)
    card = _AMD_BY_SIZE.get((device.arch, device.units, memory_gib))
    return next((sheet for sheet in DATASHEETS if sheet.card == card), None)


# MI210 and a half of an MI250 look alike (gfx90a, 104 CUs, 64 GiB), as do MI350X and MI355X: no entry.
_AMD_BY_SIZE = {
    ("gfx942", 304, 192): "MI300X",
    ("gfx942", 304, 256): "MI325X",
    ("gfx942", 228, 128): "MI300A",
    ("gfx90a", 110, 64): "MI250X, one of two dies",
}


def _rates(
    float32: float | None,
    half: float,
    *,
    tf32: float | None = None,
    float8: float | None = None,
    bfloat16: bool = True,
) -> dict[str, float]:
    """Rates by dtype; ``half`` is that of float16 and, unless said otherwise, bfloat16."""
    rates = {
        "float32": float32,
        "tf32": tf32,
        "float16": half,
        "bfloat16": half if bfloat16 else None,
        "float8": float8,
    }
    return {dtype: rate for dtype, rate in rates.items() if rate is not None}


_V100 = "NVIDIA V100 data sheet, 2020"
_A100 = "NVIDIA A100 data sheet, 2021"
_H100 = "NVIDIA H100 data sheet and H100 architecture white paper, 2023"
_H100_RATES = _rates(66.9, 989.4, tf32=494.7, float8=1978.9)
_HOPPER_NVL_RATES = _rates(60, 835.5, tf32=417.5, float8=1670.5)
_GH200 = "NVIDIA GH200 Grace Hopper data sheet, 2024"
_BLACKWELL = "NVIDIA Blackwell architecture technical brief, 2024, per GPU"
_GB300 = "NVIDIA GB300 NVL72 specifications, 2025, a 72nd of the rack"
_GA102 = "NVIDIA Ampere GA102 white paper, 2021"
_AD102 = "NVIDIA Ada GPU architecture white paper, 2023"
_MI200 = "AMD Instinct MI200 series data sheet, 2022"
_MI300 = "AMD Instinct MI300 series data sheets, 2023"
_MI350 = "AMD Instinct MI350 series data sheets, 2025"
_INFINITY_CACHE = 256 * 2**20

DATASHEETS: tuple[Datasheet, ...] = (
    # NVIDIA Volta and Turing
    Datasheet(
        card="V100 SXM2",
        names=r"(Tesla )?V100-SXM[23]-(16|32)GB(-LS)?",
        units=80,
        bandwidth_gb_per_s=900,
        tflop_per_s=_rates(15.7, 125, bfloat16=False),
        source=_V100,
    ),
    Datasheet(
        card="V100 PCIe",
        names=r"(Tesla )?V100-PCIE-(16|32)GB",
        units=80,
        bandwidth_gb_per_s=900,
        tflop_per_s=_rates(14, 112, bfloat16=False),
        source=_V100,
    ),
    Datasheet(
        card="V100S PCIe",
        names=r"(Tesla )?V100S-PCIE-32GB",
        units=80,
        bandwidth_gb_per_s=1134,
        tflop_per_s=_rates(16.4, 130, bfloat16=False),
        source=_V100,
    ),
    Datasheet(
        card="T4",
        names=r"(Tesla )?T4",
        units=40,
        bandwidth_gb_per_s=320,
        tflop_per_s=_rates(8.1, 65, bfloat16=False),
        source="NVIDIA T4 product brief PB-09256, 2019",
    ),
    # NVIDIA Ampere
    Datasheet(
        card="A100 SXM 40 GB",
        names=r"A100-SXM4?-40GB",
        units=108,
        bandwidth_gb_per_s=1555,
        tflop_per_s=_rates(19.5, 312, tf32=156),
        source=_A100,
    ),
    Datasheet(
        card="A100 PCIe 40 GB",
        names=r"A100-PCIE-40GB",
        units=108,
        bandwidth_gb_per_s=1555,
        tflop_per_s=_rates(19.5, 312, tf32=156),
        source=_A100,
    ),
    Datasheet(
        card="A100 SXM 80 GB",
        names=r"A100-SXM4?-80GB",
        units=108,
        bandwidth_gb_per_s=2039,
        tflop_per_s=_rates(19.5, 312, tf32=156),
        source=_A100,
    ),
    Datasheet(
        card="A100 PCIe 80 GB",
        names=r"A100 80GB PCIe",
        units=108,
        bandwidth_gb_per_s=1935,
        tflop_per_s=_rates(19.5, 312, tf32=156),
        source=_A100,
    ),
    Datasheet(
        card="A10",
        names=r"A10",
        units=72,
        bandwidth_gb_per_s=600,
        tflop_per_s=_rates(31.2, 125, tf32=62.5),
        source="NVIDIA A10 data sheet, 2021",
    ),
    Datasheet(
        card="A30",
        names=r"A30",
        units=56,
        bandwidth_gb_per_s=933,
        tflop_per_s=_rates(10.3, 165, tf32=82),
        source="NVIDIA A30 data sheet, 2022",
    ),
    Datasheet(
        card="A40",
        names=r"A40",
        units=84,
        bandwidth_gb_per_s=696,
        tflop_per_s=_rates(37.4, 149.7, tf32=74.8),
        source="NVIDIA A40 data sheet, 2021",
    ),
    Datasheet(
        card="RTX A6000",
        names=r"RTX A6000",
        units=84,
        bandwidth_gb_per_s=768,
        tflop_per_s=_rates(38.7, 154.8, tf32=77.4),
        source=_GA102,
    ),
    Datasheet(
        card="RTX 3090",
        names=r"GeForce RTX 3090",
        units=82,
        bandwidth_gb_per_s=936,
        tflop_per_s=_rates(35.6, 71, tf32=35.6),
        source=_GA102,
    ),
    # NVIDIA Ada
    Datasheet(
        card="L4",
        names=r"L4",
        units=58,
        bandwidth_gb_per_s=300,
        tflop_per_s=_rates(30.3, 121, tf32=60, float8=242.5),
        source="NVIDIA L4 data sheet, 2023",
    ),
    Datasheet(
        card="L40S",
        names=r"L40S",
        units=142,
        bandwidth_gb_per_s=864,
        tflop_per_s=_rates(91.6, 362, tf32=183, float8=733),
        source="NVIDIA L40S data sheet, 2023",
    ),
    Datasheet(
        card="RTX 6000 Ada",
        names=r"RTX 6000 Ada Generation",
        units=142,
        bandwidth_gb_per_s=960,
        tflop_per_s=_rates(91.1, 364.2, tf32=182.1, float8=728.5),
        source=_AD102,
    ),
    Datasheet(
        card="RTX 4090",
        names=r"GeForce RTX 4090",
        units=128,
        bandwidth_gb_per_s=1008,
        tflop_per_s=_rates(82.6, 165.2, tf32=82.6, float8=330.3),
        source=_AD102,
    ),
    # NVIDIA Hopper
    Datasheet(
        card="H100 SXM",
        names=r"H100 80GB HBM3",
        units=132,
        bandwidth_gb_per_s=3350,
        tflop_per_s=_H100_RATES,
        source=_H100,
    ),
    Datasheet(
        card="H100 PCIe",
        names=r"H100 PCIe",
        units=114,
        bandwidth_gb_per_s=2039,
        tflop_per_s=_rates(51.2, 756, tf32=378, float8=1513),
        source=_H100,
    ),
    Datasheet(
        card="H100 NVL",
        names=r"H100 NVL",
        units=132,
        bandwidth_gb_per_s=3900,
        tflop_per_s=_HOPPER_NVL_RATES,
        source="NVIDIA H100 data sheet, 2024",
    ),
    Datasheet(
        card="H200 SXM",
        names=r"H200",
        units=132,
        bandwidth_gb_per_s=4800,
        tflop_per_s=_H100_RATES,
        source="NVIDIA H200 data sheet, 2024",
    ),
    Datasheet(
        card="H200 NVL",
        names=r"H200 NVL",
        units=132,
        bandwidth_gb_per_s=4800,
        tflop_per_s=_HOPPER_NVL_RATES,
        source="NVIDIA H200 data sheet, 2024",
    ),
    Datasheet(
        card="H20 96 GB",
        names=r"H20",
        units=78,
        bandwidth_gb_per_s=4000,
        tflop_per_s=_rates(44, 148, tf32=74, float8=296),
        source="NVIDIA H20 specifications, 2023",
    ),
    Datasheet(
        card="GH200 96 GB",
        names=r"GH200 (480GB|120GB)",
        units=132,
        bandwidth_gb_per_s=4000,
        tflop_per_s=_H100_RATES,
        source=_GH200,
    ),
    Datasheet(
        card="GH200 144 GB",
        names=r"GH200 144GB? HBM3e",
        units=132,
        bandwidth_gb_per_s=4900,
        tflop_per_s=_H100_RATES,
        source=_GH200,
    ),
    # NVIDIA Blackwell
    Datasheet(
        card="B200",
        names=r"B200",
        units=148,
        bandwidth_gb_per_s=8000,
        tflop_per_s=_rates(80, 2250, tf32=1100, float8=4500),
        source=_BLACKWELL,
    ),
    Datasheet(
        card="GB200",
        names=r"GB200",
        bandwidth_gb_per_s=8000,
        tflop_per_s=_rates(80, 2500, tf32=1250, float8=5000),
        source=_BLACKWELL,
    ),
    Datasheet(
        card="B300",
        names=r"B300( SXM6 AC)?",
        units=148,
        bandwidth_gb_per_s=8000,
        tflop_per_s=_rates(75, 2250, tf32=1125, float8=4500),
        source="NVIDIA HGX B300 specifications, 2025, an eighth of the board",
    ),
    Datasheet(
        card="GB300",
        names=r"GB300",
        bandwidth_gb_per_s=8000,
        tflop_per_s=_rates(None, 2500, tf32=1250, float8=5000),
        source=_GB300,
    ),
    Datasheet(
        card="RTX 5090",
        names=r"GeForce RTX 5090",
        units=170,
        bandwidth_gb_per_s=1792,
        tflop_per_s=_rates(104.8, 209.5, tf32=104.8, float8=419),
        source="NVIDIA RTX Blackwell GPU architecture white paper, 2025",
    ),
    # AMD
    Datasheet(
        card="MI210",
        names=r"MI210",
        units=104,
        bandwidth_gb_per_s=1638.4,
        tflop_per_s=_rates(45.3, 181),
        source=_MI200,
    ),
    # PyTorch sees an MI250 or MI250X as two devices, each with half of the card's peaks.
    Datasheet(
        card="MI250X, one of two dies",
        names=r"MI250X(/MI250)?",
        units=110,
        bandwidth_gb_per_s=1638.4,
        tflop_per_s=_rates(47.9, 191.5),
        source=_MI200,
    ),
    Datasheet(
        card="MI250, one of two dies",
        names=r"MI250|MI250X/MI250",
        units=104,
        bandwidth_gb_per_s=1638.4,
        tflop_per_s=_rates(45.3, 181),
        source=_MI200,
    ),
    Datasheet(
        card="MI300X",
        names=r"MI300X( VF)?",
        units=304,
        bandwidth_gb_per_s=5300,
        tflop_per_s=_rates(163.4, 1307.4, tf32=653.7, float8=2614.9),
        source=_MI300,
        memory_cache_bytes=_INFINITY_CACHE,
    ),
    Datasheet(
        card="MI300A",
        names=r"MI300A",
        units=228,
        bandwidth_gb_per_s=5300,
        tflop_per_s=_rates(122.6, 980.6, tf32=490.3, float8=1961.2),
        source=_MI300,
        memory_cache_bytes=_INFINITY_CACHE,
    ),
    Datasheet(
        card="MI325X",
        names=r"MI325X( VF)?",
        units=304,
        bandwidth_gb_per_s=6000,
        tflop_per_s=_rates(163.4, 1307.4, tf32=653.7, float8=2614.9),
        source="AMD Instinct MI325X data sheet, 2024",
        memory_cache_bytes=_INFINITY_CACHE,
    ),
    Datasheet(
        card="MI350X",
        names=r"MI350X( VF)?",
        units=256,
        bandwidth_gb_per_s=8000,
        tflop_per_s=_rates(144.2, 2306.9, float8=4613.7),
        source=_MI350,
        memory_cache_bytes=_INFINITY_CACHE,
    ),
    Datasheet(
        card="MI355X",
        names=r"MI355X( VF)?",
        units=256,
        bandwidth_gb_per_s=8000,
        tflop_per_s=_rates(157.3, 2516.6, float8=5033.2),
        source=_MI350,
        memory_cache_bytes=_INFINITY_CACHE,
    ),
)
