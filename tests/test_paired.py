"""The judge's half of the paired timing: changed inputs, floors, slow-downs, and what it notes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest
import torch

from autokernel.evaluator import Evaluator
from autokernel.hardware import Roofline, detect
from autokernel.hardware.measure import MeasuredPeaks
from autokernel.measurement import CaseTiming, Contestant, Measurement
from autokernel.ops.spec import TimingCase
from autokernel.paired import TimingSettings, _slowed, _sparse_change
from autokernel.runner.repeated import amend
from autokernel.verifier.layouts import lay_out
from tests.evaluating import settings
from tests.planting import needs_compiler, right, wrapped

CASE = TimingCase(shape={"M": 64, "N": 1024}, dtype="float32")
BYTES = 4 * (2 * 64 * 1024 + 1024)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator("rmsnorm", device="cpu", timing_cases=[CASE], settings=settings()) as evaluator:
        yield evaluator


def case_of(**samples: tuple[float, ...]) -> CaseTiming:
    contestants = {
        name: Contestant(name=name, latency_us=1.0, low_us=1.0, high_us=1.0, call_us=1.0, samples_us=values)
        for name, values in samples.items()
    }
    return CaseTiming(label="case", weight=1.0, method="wall", contestants=contestants, speedups={})


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
def test_sparse_changes_come_from_the_new_values_and_are_few(layout):
    (value,) = lay_out((torch.zeros(256, 128),), layout, (0,))
    new = torch.arange(256 * 128.0).reshape(256, 128)

    amend(value, *_sparse_change(new, random.Random(1)))

    changed = value != 0
    assert 1 <= int(changed.sum()) <= 16 + 256 * 128 // 4096
    assert torch.equal(value[changed], new[changed])


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 1)])
def test_sparse_changes_work_on_the_smallest_tensors(shape):
    value = torch.zeros(shape)

    amend(value, *_sparse_change(torch.ones(shape), random.Random(0)))

    assert value.max() == 1.0


def test_a_machine_on_which_all_contestants_grow_slower_is_noticed():
    rising = tuple(100.0 + i for i in range(40))
    steady = tuple(100.0 + i % 3 for i in range(40))

    assert _slowed(case_of(candidate=rising, pytorch=rising))
    assert not _slowed(case_of(candidate=rising, pytorch=steady)), "only the candidate does: that is its own doing"
    assert not _slowed(case_of(candidate=steady, pytorch=steady))


def peaks(bandwidth: float) -> Roofline:
    """This machine's roofline, with another bandwidth and no cache in front of the memory."""
    device = dataclasses.replace(detect("cpu"), cache_bytes=0)
    measured = MeasuredPeaks(
        device="a machine",
        copy_gb_per_s=bandwidth,
        read_gb_per_s=bandwidth,
        tflop_per_s={"float32": 1e3},
        launch_us=1.0,
        seconds=0.0,
        measured_at="2026-01-01T00:00:00Z",
    )
    return Roofline(device, measured)


@needs_compiler
def test_the_floor_follows_from_the_bytes_and_the_bandwidth(evaluator, monkeypatch):
    monkeypatch.setattr(evaluator, "_roofline", peaks(1.0))

    (case,) = evaluator.measure(right("rmsnorm")).cases

    assert case.floor_us == pytest.approx(BYTES / 1e3)
    assert case.fraction_of_peak == pytest.approx(min(1.0, case.floor_us / case.contestants["candidate"].latency_us))
    assert case.tflop_per_s == pytest.approx(4 * 64 * 1024 / case.contestants["candidate"].latency_us / 1e6)


@needs_compiler
def test_data_that_stay_in_the_cache_have_no_floor(evaluator, monkeypatch):
    monkeypatch.setattr(
        evaluator, "_roofline", Roofline(dataclasses.replace(detect("cpu"), cache_bytes=1 << 30), peaks(1.0).measured)
    )

    (case,) = evaluator.measure(right("rmsnorm")).cases

    assert case.floor_us is None
    assert case.fraction_of_peak is None


@needs_compiler
def test_sampling_ends_when_the_interval_is_narrow_or_the_time_is_over(evaluator, monkeypatch):
    def rounds(**changes: float) -> int:
        timing = dataclasses.replace(TimingSettings(batch_rounds=8), **changes)
        monkeypatch.setattr(evaluator, "settings", dataclasses.replace(evaluator.settings, timing=timing))
        (case,) = evaluator.measure(right("rmsnorm")).cases
        return len(case.contestants["candidate"].samples_us)

    assert rounds(half_width=1e9, seconds=60.0) == 8 * 3
    assert rounds(half_width=0.0, seconds=0.0) == 8 * 3
    assert rounds(half_width=0.0, seconds=1.5) > 8 * 3


@needs_compiler
def test_all_contestants_have_a_sample_in_each_round(evaluator):
    (case,) = evaluator.measure(right("rmsnorm"), incumbent=right("rmsnorm")).cases

    counts = {name: len(contestant.samples_us) for name, contestant in case.contestants.items()}
    assert len(set(counts.values())) == 1
    assert set(counts) == {"candidate", "incumbent", "pytorch"}
    for contestant in case.contestants.values():
        assert contestant.low_us <= contestant.latency_us <= contestant.high_us
        assert contestant.call_us == contestant.latency_us, "on a CPU the two are one"


@needs_compiler
def test_a_kernel_is_about_as_fast_as_itself(evaluator):
    ratios = [evaluator.measure(right("rmsnorm"), incumbent=right("rmsnorm")).speedups["incumbent"] for _ in range(3)]

    assert sorted(ratio.value for ratio in ratios)[1] == pytest.approx(1.0, abs=0.08)


@needs_compiler
def test_a_measurement_survives_its_way_through_json(evaluator):
    measurement = evaluator.measure(right("rmsnorm"), incumbent=right("rmsnorm"))

    assert Measurement.from_dict(measurement.to_dict()) == measurement


@needs_compiler
def test_a_kernel_that_reuses_its_output_only_when_timed_is_found(evaluator):
    source = wrapped(
        "rmsnorm",
        """
        y = right(*inputs, **options)
        if y.shape != (64, 1024):
            return y
        return buffer.copy_(y)
        """,
        "buffer = torch.empty(64, 1024)",
    )

    evaluation = evaluator.evaluate(source)

    assert not evaluation.verdict.accepted
    assert "wrong_when_timed" in evaluation.verdict.reason


@needs_compiler
def test_a_kernel_that_changes_its_inputs_only_when_timed_is_found(evaluator):
    source = wrapped(
        "rmsnorm",
        """
        global count
        y = right(*inputs, **options)
        count += y.shape == (64, 1024)
        if y.shape == (64, 1024) and count > 1:  # verification tries this size once
            inputs[0].mul_(1.5)
            inputs[0][0, 0] = 7.0
        return y
        """,
        "count = 0",
    )

    evaluation = evaluator.evaluate(source)

    assert not evaluation.verdict.accepted
    assert "wrong_when_timed" in evaluation.verdict.reason
