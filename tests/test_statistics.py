"""Intervals for speedups: they cover what is true, weigh as Amdahl does, and shrug off outliers."""

from __future__ import annotations

import random

import pytest

from autokernel import statistics
from autokernel.policy import PolicySettings
from autokernel.statistics import quantile, relative_half_width, speedup, weighted_speedup


def rounds(
    order: random.Random, count: int, faster: float = 1.0, noise: float = 0.02
) -> tuple[list[float], list[float]]:
    """Samples of a candidate and of another that is ``faster`` times slower, on a machine that drifts and stutters."""
    candidate, other = [], []
    drift = 100.0
    for _ in range(count):
        drift *= 1 + order.gauss(0, 0.01)  # shared by the contestants of a round
        for samples, scale in ((candidate, 1.0), (other, faster)):
            sample = drift * scale * (1 + order.gauss(0, noise))
            if order.random() < 0.03:
                sample *= 1 + order.expovariate(1.0)  # preempted
            samples.append(sample)
    return candidate, other


@pytest.mark.parametrize("true_value", [1.0, 1.03])
def test_the_interval_covers_the_true_speedup_in_about_95_of_100_cases(true_value):
    order = random.Random(7)

    trials = [speedup(*rounds(order, 48, true_value), seed=number) for number in range(80)]

    covered = sum(ratio.low <= true_value <= ratio.high for ratio in trials) / len(trials)
    assert 0.9 <= covered <= 1.0
    assert all(ratio.low <= ratio.value <= ratio.high for ratio in trials)


def test_a_candidate_that_is_no_faster_is_rarely_found_faster_by_a_percent_twice():
    order = random.Random(11)
    threshold = 1 + PolicySettings().threshold

    kept = 0
    for number in range(120):
        first = speedup(*rounds(order, 48), seed=number)
        if first.low >= threshold:
            kept += speedup(*rounds(order, 48), seed=number + 1000).low >= threshold

    assert kept / 120 <= 0.01


def test_a_candidate_that_is_three_percent_faster_is_found_faster_by_a_percent():
    order = random.Random(13)

    found = [speedup(*rounds(order, 96, 1.03, noise=0.01), seed=number).low >= 1.01 for number in range(50)]

    assert sum(found) >= 47


def test_one_round_in_eight_that_was_preempted_moves_nothing():
    candidate, other = [100.0 + i % 3 for i in range(40)], [200.0 + 2 * (i % 3) for i in range(40)]
    disturbed = [value * 50 if i % 8 == 0 else value for i, value in enumerate(candidate)]

    assert speedup(candidate, other).value == pytest.approx(2.0)
    assert speedup(disturbed, other).value == pytest.approx(2.0)
    assert speedup(disturbed, other).low > 1.9


def test_a_drift_that_both_share_cancels():
    drift = [1.0 + 0.05 * i for i in range(40)]

    ratio = speedup([100 * d for d in drift], [150 * d for d in drift])

    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.5, 1.5, 1.5))


def test_weighted_cases_add_up_as_amdahl_says():
    twice, same = ([50.0] * 16, [100.0] * 16), ([70.0] * 16, [70.0] * 16)

    assert weighted_speedup([twice, same], [1, 1]).value == pytest.approx(1 / (0.5 / 2 + 0.5))
    assert weighted_speedup([twice, same], [9, 1]).value == pytest.approx(1 / (0.9 / 2 + 0.1))
    assert weighted_speedup([twice, same], [90, 10]).value == weighted_speedup([twice, same], [9, 1]).value
    assert weighted_speedup([twice, same], [0, 1]).value == pytest.approx(1.0)


def test_a_case_that_gets_slower_can_outweigh_one_that_gets_faster():
    faster, slower = ([50.0] * 16, [100.0] * 16), ([200.0] * 16, [100.0] * 16)

    assert weighted_speedup([faster, slower], [1, 1]).value == pytest.approx(0.8)


def test_the_interval_narrows_with_the_root_of_the_number_of_rounds():
    order = random.Random(3)
    widths = {}
    for count in (25, 400):
        ratios = [speedup(*rounds(order, count), seed=i) for i in range(20)]
        widths[count] = sum(ratio.high - ratio.low for ratio in ratios) / len(ratios)

    assert widths[25] / widths[400] == pytest.approx(4, rel=0.35)


def test_the_quick_width_agrees_with_the_bootstraps():
    order = random.Random(5)
    for _ in range(10):
        candidate, other = rounds(order, 64)
        ratio = speedup(candidate, other)
        width = max(ratio.high / ratio.value, ratio.value / ratio.low) - 1
        assert relative_half_width(candidate, other) == pytest.approx(width, rel=0.6)


def test_the_same_samples_and_seed_give_the_same_interval():
    candidate, other = rounds(random.Random(1), 32)

    assert speedup(candidate, other, seed=4) == speedup(candidate, other, seed=4)


def test_samples_that_are_not_paired_are_refused():
    with pytest.raises(ValueError, match="paired samples are needed; got 3 and 2"):
        speedup([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="got 0 and 0"):
        speedup([], [])


def test_a_single_round_gives_an_interval_of_no_width():
    ratio = speedup([10.0], [20.0])

    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_quantiles_are_interpolated():
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([5.0], 0.2) == 5.0
    assert statistics.RESAMPLES >= 1000
