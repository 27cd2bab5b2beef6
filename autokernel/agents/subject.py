"""What a run is about, in figures: the operation's definition and cost, the device and its roofline.

Made once per run, because none of it changes within one.  Nothing is measured here: the device's peaks
are those that the judge measured and cached; without them there is no floor.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.agents.manual import architecture
from autokernel.errors import AutokernelError
from autokernel.hardware import Device, Roofline, cache_file, datasheet, detect
from autokernel.hardware.measure import MeasuredPeaks
from autokernel.target import Target

if TYPE_CHECKING:
    from autokernel.ops.spec import KernelSpec

__all__ = ["Subject", "subject_of"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """What a run is about.

    Attributes:
        reference: The text of the operation's reference in PyTorch, or "" if it cannot be had.
        device: The device in words, with its peaks; "" if it is not there.
        architecture: The manual's name of it, or "".
        bound: ``memory`` or ``compute``, of the first timing case; "" if unknown.
        cases: One line for each timing case: sizes, FLOP, bytes, floor.
    """

    reference: str
    device: str
    architecture: str
    bound: str
    cases: tuple[str, ...]


def subject_of(target: Target) -> Subject:
    """Gather what is known; imports torch.

    Raises:
        UnknownOperation: There is no such operation.
        InvalidSpec: The user's spec cannot be read.
    """
    from autokernel import ops

    spec = ops.resolve(target.reference)
    device = _device(target)
    line = None if device is None else _roofline(device)
    costs = [_cost(spec, case.shape, target.dtype) for case in target.timing]
    return Subject(
        reference=_source(spec.reference),
        device=_in_words(device, line, target.dtype),
        architecture="" if device is None else architecture(device.arch),
        bound=_bound(costs[0], line, target.dtype),
        cases=tuple(_case(case, cost, line, target.dtype) for case, cost in zip(target.timing, costs, strict=True)),
    )


def _bound(cost: tuple[float | None, float | None], line: Roofline | None, dtype: str) -> str:
    """What bounds a call; unknown without a roofline or a cost, and where it would be memory but a cache holds all."""
    flops, moved = cost
    if line is None or not flops or not moved:
        return ""
    bound = line.bound(flops, moved, dtype)
    return "" if bound == "memory" and line.in_cache(moved) else bound


def _device(target: Target) -> Device | None:
    try:
        return detect(target.device)
    except AutokernelError:
        return None  # the run of another machine, looked at here


def _roofline(device: Device) -> Roofline | None:
    """The roofline from cached peaks, or None: measuring is the judge's business."""
    file = cache_file(device)
    try:
        peaks = MeasuredPeaks.from_dict(json.loads(Path(file or "").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return Roofline(device, peaks, datasheet(device))


def _cost(spec: KernelSpec, shape: Any, dtype: str) -> tuple[float | None, float | None]:
    """FLOP and bytes of a call, each None where the spec does not say."""
    from autokernel.ops.spec import dtype_named

    flops = None if spec.flops is None else float(spec.flops(shape))
    moved = None if spec.bytes_moved is None else float(spec.bytes_moved(shape, dtype_named(dtype).itemsize))
    return flops, moved


def _case(case: Any, cost: tuple[float | None, float | None], line: Roofline | None, dtype: str) -> str:
    flops, moved = cost
    sizes = " ".join(f"{name}={value}" for name, value in {**case.shape, **case.options}.items())
    layout = "" if case.layout == "contiguous" else f" {case.layout}"
    words = [f"{sizes} {dtype}{layout}, weight {case.weight:g}"]
    words += [] if flops is None else [f"{flops / 1e6:.6g} MFLOP"]
    words += [] if moved is None else [f"{moved / 1e6:.6g} MB at the least"]
    if line is not None and flops is not None and moved is not None:
        if line.in_cache(moved) and line.bound(flops, moved, dtype) == "memory":
            words.append("fits into the last-level cache, so no floor by bandwidth")
        else:
            words.append(f"floor {line.floor_us(flops, moved, dtype):.4g} us")
    return "; ".join(words)


def _in_words(device: Device | None, line: Roofline | None, dtype: str) -> str:
    if device is None:
        return ""
    words = [str(device)]
    if device.cache_bytes:
        words.append(f"last-level cache {device.cache_bytes / 2**20:.0f} MiB")
    if line is not None:
        words.append(f"measured {line.bandwidth_gb_per_s:.0f} GB/s")
        rate = line.rate_tflop_per_s(dtype)
        words += [] if rate is None else [f"measured {rate:.3g} TFLOP/s on {dtype} matrices"]
        words.append(f"{line.measured.launch_us:.3g} us per PyTorch call")
        ridge = line.ridge_flop_per_byte(dtype)
        words += [] if ridge is None else [f"ridge point {ridge:.3g} FLOP/byte"]
    words += [
        word for word in (device.runtime, f"torch {device.torch_version}" if device.torch_version else "") if word
    ]
    return "; ".join(words)


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
