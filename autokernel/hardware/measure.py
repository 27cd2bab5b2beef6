"""What this device really does: copy and read bandwidth, matrix rate, launch overhead.

Measured with PyTorch's own kernels, in a few seconds, and kept on disk for this device, driver and
PyTorch version.  These are the figures that percentages and floors are quoted against; a data sheet's
peak is never reached, by anyone.

A figure is the best over a few ways and sizes: it should say what the device can do, not what one
awkward size does.  A kernel with easier data or better code may still beat it by some percent.
Figures that were taken while the machine was busy are marked, and used for ten minutes only.

Units: GB/s (10^9 bytes, reads and writes both counted), TFLOP/s, microseconds, seconds.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.hardware.detect import Device, detect

if TYPE_CHECKING:
    import torch

__all__ = ["MeasuredPeaks", "cache_file", "measure"]

_FORMAT = 2  # raise when the way of measuring or the file changes
_UNSTEADY_FOR = datetime.timedelta(minutes=10)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredPeaks:
    """What was measured on one device.

    Attributes:
        device: The device's name.
        copy_gb_per_s: A large copy in device memory, bytes read plus bytes written.
        read_gb_per_s: A sum over a large buffer, which writes nothing.
        tflop_per_s: Matrix product by dtype: ``float32`` (IEEE), ``tf32``, ``float16``, ``bfloat16``.
            A dtype that the device or PyTorch cannot multiply is absent.
        launch_us: Time per call of PyTorch's smallest operator, back to back: what a launch costs.
        seconds: How long measuring took.
        measured_at: UTC, ISO 8601.
        driver: Version of the device's driver.
        torch_version: Version of PyTorch.
        threads: Threads that PyTorch used on a CPU; 0 for a GPU.
        steady: False if the samples scattered, so that the machine was busy with something else.
    """

    device: str
    copy_gb_per_s: float
    read_gb_per_s: float
    tflop_per_s: Mapping[str, float]
    launch_us: float
    seconds: float
    measured_at: str
    driver: str = ""
    torch_version: str = ""
    threads: int = 0
    steady: bool = True

    @property
    def bandwidth_gb_per_s(self) -> float:
        """The higher of copy and read bandwidth: the bound for a kernel of any mixture."""
        return max(self.copy_gb_per_s, self.read_gb_per_s)

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON-ready data."""
        return {**dataclasses.asdict(self), "tflop_per_s": dict(self.tflop_per_s)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MeasuredPeaks:
        """Read back what `to_dict` made.

        Raises:
            ValueError: A field is missing or unknown, or a figure is not a positive number.
        """
        try:
            peaks = cls(**data)
            figures = (peaks.copy_gb_per_s, peaks.read_gb_per_s, peaks.launch_us, *peaks.tflop_per_s.values())
            sound = all(math.isfinite(figure) and figure > 0 for figure in figures)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no measured peaks: {error}") from error
        if not sound:
            raise ValueError(f"a measured peak is not a positive number: {figures}")
        return peaks


def measure(device: str | torch.device | Device = "auto", *, refresh: bool = False) -> MeasuredPeaks:
    """Return the device's measured peaks, from the cache or by measuring now.

    Measuring takes about 2 s on a GPU and 4 s on a CPU, and expects the device to be otherwise idle.
    A cache that cannot be read or written is passed over: the figures are then measured each time.

    Args:
        device: As for `detect`.
        refresh: Measure now, whatever is cached.

    Raises:
        DeviceUnavailable: The device is not there.
    """
    device = detect(device)
    file = cache_file(device)
    cached = None if refresh or file is None else _load(file)
    if cached is not None:
        return cached
    peaks = _measure_now(device)
    if file is not None:
        _save(peaks, file)
    return peaks


def cache_file(device: Device) -> Path | None:
    """Where the device's figures are kept, or None on a machine with no home folder.

    One file for each device name, size, driver, PyTorch version and, on a CPU, number of threads, in
    ``$XDG_CACHE_HOME/autokernel``, by default ``~/.cache/autokernel``.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is to be ignored
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError:
            return None
    key = [_FORMAT, device.kind, device.name, device.arch, device.units, device.memory_bytes]
    key += [device.driver, device.runtime, device.torch_version, _threads(device)]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
    slug = re.sub(r"[^A-Za-z0-9]+", "-", device.name).strip("-").lower()[:60]
    return Path(base) / "autokernel" / f"peaks-{slug}-{digest}.json"


def _measure_now(device: Device) -> MeasuredPeaks:
    from autokernel.hardware import benchmarks  # imports torch

    started = time.perf_counter()
    figures = benchmarks.run(device)
    return MeasuredPeaks(
        device=device.name,
        copy_gb_per_s=figures.copy_gb_per_s,
        read_gb_per_s=figures.read_gb_per_s,
        tflop_per_s=figures.tflop_per_s,
        launch_us=figures.launch_us,
        seconds=round(time.perf_counter() - started, 2),
        measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        driver=device.driver,
        torch_version=device.torch_version,
        threads=_threads(device),
        steady=figures.steady,
    )


def _threads(device: Device) -> int:
    if device.is_gpu:
        return 0
    import torch

    return torch.get_num_threads()


def _load(file: Path) -> MeasuredPeaks | None:
    """The figures in a cache file, or None if it is missing, unreadable, damaged, or unsteady and old."""
    try:
        peaks = MeasuredPeaks.from_dict(json.loads(file.read_text(encoding="utf-8")))
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(peaks.measured_at)
    except (OSError, ValueError, TypeError):
        return None
    return peaks if peaks.steady or age < _UNSTEADY_FOR else None


def _save(peaks: MeasuredPeaks, file: Path) -> bool:
    """Write the figures in one step, so that no reader sees half a file; False if that is not possible."""
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".peaks-", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(peaks.to_dict(), stream, indent=2)
        os.replace(temporary, file)
        return True
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return False
