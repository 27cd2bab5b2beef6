"""Which device there is: `detect` describes an NVIDIA GPU, an AMD GPU or the CPU in one dataclass.

A fact that the machine does not tell is empty or 0, never guessed.  How fast the device is, the
sibling modules say.

Units: bytes.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.errors import DeviceUnavailable, UsageError
from autokernel.hardware import cpu

if TYPE_CHECKING:
    import torch

__all__ = ["Device", "detect"]

_NAMES = "auto, cpu, cuda, cuda:N, rocm or rocm:N"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """One device that kernels run on.

    Attributes:
        kind: ``cuda`` (NVIDIA), ``rocm`` (AMD) or ``cpu``.
        name: As the vendor's driver gives it, such as ``NVIDIA H100 80GB HBM3``; for an AMD GPU whose
            name is empty, ``AMD`` and its architecture.
        index: Number of the GPU among those that PyTorch sees; 0 for a CPU.
        arch: What compilers are told: ``sm_90``, ``gfx942``, or for a CPU machine and vector width,
            such as ``x86_64 AVX512``.
        memory_bytes: Device memory; for a CPU the main memory that this process may use.
        units: Streaming multiprocessors, compute units, or CPU cores that this process may use.
        cache_bytes: L2 cache of a GPU, last-level cache of a CPU; 0 if unknown.
        driver: Version of the kernel driver, or "" if unknown; "" for a CPU.
        runtime: What this PyTorch was built for: ``CUDA 13.0``, ``ROCm 6.4``, or "" for a CPU.
        torch_version: Version of PyTorch, with its build (``2.13.0+cpu``).
    """

    kind: str
    name: str
    index: int = 0
    arch: str = ""
    memory_bytes: int = 0
    units: int = 0
    cache_bytes: int = 0
    driver: str = ""
    runtime: str = ""
    torch_version: str = ""

    @property
    def is_gpu(self) -> bool:
        """True for NVIDIA and AMD GPUs."""
        return self.kind != "cpu"

    @property
    def torch_name(self) -> str:
        """The device as PyTorch writes it: ``cuda:0`` (for AMD too) or ``cpu``."""
        return f"cuda:{self.index}" if self.is_gpu else "cpu"

    def to_dict(self) -> dict[str, Any]:
        """The device as JSON-ready data."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        units = {"cuda": "SMs", "rocm": "CUs", "cpu": "cores"}[self.kind]
        facts = (self.arch, f"{self.units} {units}", f"{self.memory_bytes / 2**30:.0f} GiB")
        return f"{self.name} ({', '.join(fact for fact in facts if fact)})"


def detect(device: str | torch.device | Device = "auto") -> Device:
    """Describe a device.

    Args:
        device: ``auto`` (the first GPU, or the CPU where PyTorch sees none), ``cpu``, ``cuda`` or
            ``cuda:N``, ``rocm`` or ``rocm:N``, or a ``torch.device``.  As in PyTorch, ``cuda`` names an
            AMD GPU too; ``rocm`` names only those.  A `Device` is returned as it is.

    Raises:
        UsageError: The name is none of these.
        DeviceUnavailable: PyTorch does not see that device; the message says which it sees.

    >>> detect("cpu").kind
    'cpu'
    """
    if isinstance(device, Device):
        return device
    match = re.fullmatch(r"(auto|cpu|cuda|rocm)(?::(\d+))?", str(device))
    if match is None or (match[1] == "auto" and match[2]) or (match[1] == "cpu" and int(match[2] or 0)):
        raise UsageError(f"device {str(device)!r} is none of {_NAMES}")

    import torch

    kind, index = match[1], int(match[2] or 0)
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return _cpu(torch.__version__)
    _require_gpu(kind, index)
    return _gpu(index)


def _require_gpu(kind: str, index: int) -> None:
    import torch

    wanted = f"device '{kind}:{index}' is not there"
    hip = torch.version.hip
    if not torch.cuda.is_available():
        if torch.version.cuda is None and hip is None:
            reason = f"PyTorch {torch.__version__} is built for CPUs only; install a CUDA or ROCm build"
        else:
            built = f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}"
            reason = f"PyTorch {torch.__version__} ({built}) finds no GPU that it can use; check the driver"
        raise DeviceUnavailable(f"{wanted}: {reason}, or use device 'cpu'{_masks()}")
    if kind == "rocm" and hip is None:
        raise DeviceUnavailable(f"{wanted}: PyTorch {torch.__version__} is built for CUDA; use device 'cuda'")
    count = torch.cuda.device_count()
    if index >= count:
        raise DeviceUnavailable(
            f"{wanted}: PyTorch sees {count} device{'s' if count != 1 else ''}, numbered from 0{_masks()}"
        )


def _masks() -> str:
    """The variables that hide GPUs from PyTorch, for a message: `` (CUDA_VISIBLE_DEVICES=1)`` or ""."""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    found = [f"{name}={os.environ[name]!r}" for name in names if name in os.environ]
    return f" ({', '.join(found)})" if found else ""


def _gpu(index: int) -> Device:
    import torch

    try:
        properties = torch.cuda.get_device_properties(index)
    except (RuntimeError, AssertionError) as error:
        raise DeviceUnavailable(
            f"device 'cuda:{index}' does not start: {str(error).splitlines()[0]}; check it with nvidia-smi or rocm-smi"
        ) from error
    return describe_gpu(
        properties,
        index,
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        torch_version=torch.__version__,
    )


def describe_gpu(properties: Any, index: int, *, cuda: str | None, hip: str | None, torch_version: str) -> Device:
    """Build a `Device` from what ``torch.cuda.get_device_properties`` returned.

    On ROCm the marketing name can be empty or blank; then the architecture stands in for it.
    """
    name = (properties.name or "").strip()
    if hip is not None:
        arch = getattr(properties, "gcnArchName", "").split(":")[0]
        name = name or f"AMD {arch}".strip()
        driver = _first_line(Path("/sys/module/amdgpu/version"))
    else:
        arch = f"sm_{properties.major}{properties.minor}"
        driver = _nvidia_driver()
    return Device(
        kind="cuda" if hip is None else "rocm",
        name=name,
        index=index,
        arch=arch,
        memory_bytes=properties.total_memory,
        units=properties.multi_processor_count,
        cache_bytes=getattr(properties, "L2_cache_size", 0),
        driver=driver,
        runtime=f"CUDA {cuda}" if hip is None else f"ROCm {hip}",
        torch_version=torch_version,
    )


def _cpu(torch_version: str) -> Device:
    import torch

    width = torch.backends.cpu.get_cpu_capability()
    return Device(
        kind="cpu",
        name=cpu.model_name(),
        arch=f"{platform.machine()} {'' if width in ('DEFAULT', 'NO AVX') else width}".strip(),
        memory_bytes=cpu.memory_bytes(),
        units=cpu.usable_cores(),
        cache_bytes=cpu.last_level_cache_bytes(),
        torch_version=torch_version,
    )


def _nvidia_driver() -> str:
    """The NVIDIA kernel driver's version, such as ``580.82.07``, or ""."""
    line = _first_line(Path("/proc/driver/nvidia/version"))
    match = re.search(r"\s(\d{3}\.\d+(?:\.\d+)?)\s", line)
    return match[1] if match else ""


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return ""
