"""The small benchmarks behind `measure`: copy, read, matrix product, smallest launch.

On a GPU each sample lies between two device events; on a CPU it is wall time with PyTorch's threads.
Buffers are larger than the cache (several times, up to 1 GiB on a GPU and 512 MiB on a CPU).  Matrices hold random numbers, because zeros draw less
power and run faster than any real data.  Every benchmark has a time budget, so that a slow device
takes no longer than a fast one.

Units: bytes, seconds inside, and GB/s, TFLOP/s, microseconds in the result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from autokernel.hardware.detect import Device

__all__ = ["Figures", "run"]

_COPY_BUDGET_S = 0.3  # for each way of copying or reading
_MATMUL_BUDGET_S = 0.3  # for each dtype
_SIZES = {"cuda": (2048, 4096, 8192), "rocm": (2048, 4096, 8192), "cpu": (256, 512, 1024, 2048)}


@dataclasses.dataclass(frozen=True)
class Figures:
    """Raw results; see `autokernel.hardware.MeasuredPeaks` for their meaning."""

    copy_gb_per_s: float
    read_gb_per_s: float
    tflop_per_s: dict[str, float]
    launch_us: float


def run(device: Device) -> Figures:
    """Measure all figures of a device."""
    with _on(device), torch.inference_mode():
        copy, read = _bandwidth(device)
        rates = {}
        for dtype in ("float32", "tf32", "float16", "bfloat16"):
            rate = _matmul_rate(device, dtype)
            if rate is not None:
                rates[dtype] = rate
        return Figures(copy, read, rates, _launch_us(device))


def _bandwidth(device: Device) -> tuple[float, float]:
    """Copy and read bandwidth in GB/s, each the best of the ways that PyTorch has."""
    n_bytes = _buffer_bytes(device)
    source = torch.ones(n_bytes // 4, dtype=torch.float32, device=device.torch_name)
    target = torch.empty_like(source)
    copies = (lambda: target.copy_(source), lambda: torch.neg(source, out=target))
    reads = (lambda: source.sum(), lambda: torch.dot(source, source))
    copy = max(2 * n_bytes / _median_seconds(device, call, _COPY_BUDGET_S) for call in copies)
    # dot reads its one buffer twice by the letter, but the second read of each element comes from a register or cache
    read = max(n_bytes / _median_seconds(device, call, _COPY_BUDGET_S) for call in reads)
    return copy / 1e9, read / 1e9


def _buffer_bytes(device: Device) -> int:
    """Several times the cache, so that next to nothing is left in it; at most an eighth of the free memory."""
    free = torch.cuda.mem_get_info(device.index)[0] if device.is_gpu else device.memory_bytes
    wanted = 2**30 if device.is_gpu else min(max(4 * device.cache_bytes, 2**27), 2**29)
    return max(2**24, min(wanted, free // 8)) // 4096 * 4096


def _matmul_rate(device: Device, dtype: str) -> float | None:
    """The matrix rate in TFLOP/s over growing sizes within the budget, or None where there is none."""
    if dtype == "tf32" and not _has_tf32(device):
        return None
    torch_dtype = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    best, deadline = None, time.perf_counter() + _MATMUL_BUDGET_S
    try:
        with _float32_precision("tf32" if dtype == "tf32" else "ieee"):
            for size in _SIZES[device.kind]:
                a = torch.randn(size, size, device=device.torch_name).to(torch_dtype)
                b = torch.randn(size, size, device=device.torch_name).to(torch_dtype)
                out = torch.empty_like(a)
                multiply = functools.partial(torch.mm, a, b, out=out)
                seconds = _median_seconds(device, multiply, _MATMUL_BUDGET_S / 3)
                best = max(best or 0.0, 2.0 * size**3 / seconds / 1e12)
                if time.perf_counter() + 8 * seconds * 3 > deadline:  # the next size takes eight times as long
                    break
    except RuntimeError:  # not implemented for this dtype, or out of memory: what was measured before stands
        if device.is_gpu:
            torch.cuda.empty_cache()
    return best


def _has_tf32(device: Device) -> bool:
    return device.kind == "cuda" and int(device.arch.removeprefix("sm_")) >= 80


def _launch_us(device: Device) -> float:
    """Time per call of ``zero_`` on one element, called back to back."""
    x = torch.empty(1, device=device.torch_name)
    calls = 200

    def batch() -> float:
        _synchronize(device)
        started = time.perf_counter()
        for _ in range(calls):
            x.zero_()
        _synchronize(device)
        return (time.perf_counter() - started) / calls

    batch()
    return statistics.median(batch() for _ in range(10)) * 1e6


def _median_seconds(device: Device, call: Callable[[], object], budget_s: float) -> float:
    """Median time of a call, of at least 3 and at most 50 samples, after a warm-up of a quarter of the budget."""
    started = time.perf_counter()
    call()
    _synchronize(device)
    while time.perf_counter() - started < budget_s / 4:
        call()
        _synchronize(device)
    samples: list[float] = []
    while len(samples) < 3 or (len(samples) < 50 and time.perf_counter() - started < budget_s):
        samples.append(_one_sample(device, call))
    return statistics.median(samples)


def _one_sample(device: Device, call: Callable[[], object]) -> float:
    if not device.is_gpu:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def _synchronize(device: Device) -> None:
    if device.is_gpu:
        torch.cuda.synchronize(device.index)


@contextlib.contextmanager
def _on(device: Device) -> Iterator[None]:
    if not device.is_gpu:
        yield
        return
    with torch.cuda.device(device.index):
        yield
        torch.cuda.empty_cache()


@contextlib.contextmanager
def _float32_precision(precision: str) -> Iterator[None]:
    """Let float32 matrix products round their inputs to TF32 (``tf32``) or not (``ieee``)."""
    settings = torch.backends.cuda.matmul
    if hasattr(settings, "fp32_precision"):  # PyTorch 2.9 and newer; mixing it with allow_tf32 is an error there
        before = settings.fp32_precision
        settings.fp32_precision = precision
        try:
            yield
        finally:
            settings.fp32_precision = before
        return
    allowed = settings.allow_tf32
    settings.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        settings.allow_tf32 = allowed
