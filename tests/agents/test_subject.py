"""What a run is about, in figures that nobody measures for it."""

from __future__ import annotations

import json

import pytest

from autokernel import hardware, starters
from autokernel.agents.subject import subject_of
from tests.agents.contexts import context_of


@pytest.fixture
def peaks(tmp_path, monkeypatch):
    """Cached peaks of this CPU: 20 GB/s and 0.2 TFLOP/s, so a ridge point of 10 FLOP/byte."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device = hardware.detect("cpu")
    measured = hardware.MeasuredPeaks(
        device=device.name, copy_gb_per_s=20.0, read_gb_per_s=10.0, tflop_per_s={"float32": 0.2}, launch_us=1.0,
        seconds=0.1, measured_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    file = hardware.cache_file(device)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(measured.to_dict()))
    return device


def subject(tmp_path, operation, *shapes):
    context = context_of(tmp_path, starters.source(operation, "cpp"), operation=operation, shapes=shapes)
    return subject_of(context.target)


def test_costs_floor_and_bound_follow_from_the_spec_and_the_cached_peaks(tmp_path, peaks):
    rows = 2 * (peaks.cache_bytes // (4 * 2 * 4096) + 1)  # twice what the last-level cache holds
    found = subject(tmp_path, "rmsnorm", {"M": rows, "N": 4096})

    moved = 4 * (2 * rows * 4096 + 4096)
    assert f"{4 * rows * 4096 / 1e6:.6g} MFLOP" in found.cases[0]
    assert f"floor {moved / 20e3:.4g} us" in found.cases[0]
    assert found.bound == "memory"
    assert "ridge point 10 FLOP/byte" in found.device
    assert "def reference(x: Tensor" in found.reference
    assert found.architecture == "CPU"


def test_a_product_of_matrices_is_bound_by_compute(tmp_path, peaks):
    assert subject(tmp_path, "matmul", {"M": 512, "N": 512, "K": 512}).bound == "compute"


def test_memory_bounds_nothing_that_fits_into_the_cache(tmp_path, peaks):
    found = subject(tmp_path, "rmsnorm", {"M": 8, "N": 64})

    assert found.bound == ""
    assert "fits into the last-level cache" in found.cases[0]


def test_without_cached_peaks_nothing_is_measured_and_no_floor_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = subject(tmp_path, "rmsnorm", {"M": 1 << 20, "N": 4096})

    assert found.bound == ""
    assert "floor" not in found.cases[0]
    assert "measured" not in found.device
    assert list(tmp_path.rglob("peaks-*")) == []


def test_a_device_that_is_not_here_is_left_out(tmp_path):
    context = context_of(tmp_path, "x", backend="triton", device="cuda:99")

    assert (subject_of(context.target).device, subject_of(context.target).architecture) == ("", "")
