"""The small benchmarks behind `measure`: copy, read, matrix product, smallest launch.

On a GPU each sample lies between two device events, and the median counts.  On a CPU a sample is wall
time with PyTorch's threads, which whatever else runs can only lengthen, so the fastest sample counts;
when the median is far from it the machine was busy, and the result says so.

Buffers are larger than the cache (up to 1 GiB on a GPU, 512 MiB on a CPU).  Matrices hold random
numbers, because zeros draw less power and run faster than any real data.  Every benchmark has a time
budget, so that a slow device takes no longer than a fast one.

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
_SIZES = {"cuda": (2048, 4096, 8192), "rocm": (2048, 4096, 8192), "cpu": (512, 1024, 2048)}
_UNSTEADY = 1.3  # median over fastest sample of the copy, above which the machine was busy


@dataclasses.dataclass(frozen=True)
class Figures:
    """Raw results; see `autokernel.hardware.MeasuredPeaks` for their meaning."""

    copy_gb_per_s: float
    read_gb_per_s: float
    tflop_per_s: dict[str, float]
    launch_us: float
    steady: bool


def run(device: Device) -> Figures:
    """Measure all figures of a device."""
    with _on(device), torch.inference_mode():
        copy, read, steady = _bandwidth(device)
        rates = {}
        for dtype in ("float32", "tf32", "float16", "bfloat16"):
            rate = _matmul_rate(device, dtype)
            if rate is not None:
                rates[dtype] = rate
        return Figures(copy, read, rates, _launch_us(device), steady)


@dataclasses.dataclass(frozen=True)
class _Timing:
    """Times of one call in seconds: ``value`` is the one that counts."""

    value: float
    spread: float  # median over fastest


def _bandwidth(device: Device) -> tuple[float, float, bool]:
    """Copy and read bandwidth in GB/s, each the best of the ways that PyTorch has; and whether times were steady."""
    n_bytes = _buffer_bytes(device)
    source = torch.ones(n_bytes // 4, dtype=torch.float32, device=device.torch_name)
    target = torch.empty_like(source)
    copies = (lambda: target.copy_(source), lambda: torch.neg(source, out=target))
    reads = (lambda: source.sum(), lambda: torch.dot(source, source))
    copy_timings = [_time(device, call, _COPY_BUDGET_S) for call in copies]
    read_timings = [_time(device, call, _COPY_BUDGET_S) for call in reads]
    copy = 2 * n_bytes / min(timing.value for timing in copy_timings)
    read = n_bytes / min(timing.value for timing in read_timings)  # dot's second look at an element hits the cache
    return copy / 1e9, read / 1e9, all(timing.spread < _UNSTEADY for timing in copy_timings)


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
                seconds = _time(device, multiply, _MATMUL_BUDGET_S / 3).value
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


def _time(device: Device, call: Callable[[], object], budget_s: float) -> _Timing:
    """Time a call: the fastest of at least 3 and at most 50 samples, after a warm-up of a quarter of the budget."""
    started = time.perf_counter()
    call()
    _synchronize(device)
    while time.perf_counter() - started < budget_s / 4:
        call()
        _synchronize(device)
    samples: list[float] = []
    while len(samples) < 3 or (len(samples) < 50 and time.perf_counter() - started < budget_s):
        samples.append(_one_sample(device, call))
    median, fastest = statistics.median(samples), min(samples)
    return _Timing(fastest, median / fastest)


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
