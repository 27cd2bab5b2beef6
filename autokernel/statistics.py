"""Confidence intervals for speedups, from paired samples.

Contestants are timed in rounds; a round's times share the state of the machine, so the ratio is
taken within the round and the rounds are resampled.  Medians, because one preempted round must not
decide.

Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13
(paired samples, percentile interval).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autokernel.measurement import Ratio

__all__ = ["quantile", "relative_half_width", "speedup", "weighted_speedup"]

RESAMPLES = 2000


def quantile(samples: Sequence[float], q: float) -> float:
    """The ``q`` quantile of the samples, linearly interpolated."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(q))


def _log_ratio_draws(candidate: Sequence[float], other: Sequence[float], seed: int) -> tuple[float, Tensor]:
    """Return the median log ratio over the rounds, and its bootstrap draws, float64[RESAMPLES]."""
    if len(candidate) != len(other) or not candidate:
        raise ValueError(f"paired samples are needed; got {len(candidate)} and {len(other)}")
    ratios = torch.tensor(other, dtype=torch.float64).log() - torch.tensor(candidate, dtype=torch.float64).log()
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(ratios), (RESAMPLES, len(ratios)), generator=generator)
    return float(ratios.quantile(0.5)), ratios[picks].quantile(0.5, dim=1)


def weighted_speedup(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], weights: Sequence[float], *, seed: int = 0
) -> Ratio:
    """The speedup over all timing cases, with its 95 % interval.

    If case *i* takes the share *w_i* of the time today, and the candidate changes it by the factor
    *1 / s_i*, then the whole changes by *sum(w) / sum(w_i / s_i)* (Amdahl).

    Args:
        pairs: For each case, the candidate's and the other contestant's samples, round by round.
        weights: The cases' shares; only ratios matter.
        seed: Of the bootstrap.
    """
    total = sum(weights)
    centre, draws = 0.0, torch.zeros(RESAMPLES, dtype=torch.float64)
    for number, ((candidate, other), weight) in enumerate(zip(pairs, weights, strict=True)):
        median, sample = _log_ratio_draws(candidate, other, seed + number)
        centre += weight / total * float(torch.tensor(-median).exp())
        draws += weight / total * (-sample).exp()
    ends = (1 / draws).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return Ratio(1 / centre, float(ends[0]), float(ends[1]))


def relative_half_width(candidate: Sequence[float], other: Sequence[float]) -> float:
    """How wide the interval of a speedup is to either side, quickly: from order statistics.

    The ranks ``n / 2 -+ 0.98 sqrt(n)`` of the sorted ratios bound their median in 95 % of samples.
    Source: H. David and H. Nagaraja, Order Statistics, 3rd edition, 2003, section 7.1.
    """
    ratios = sorted(b / a for a, b in zip(candidate, other, strict=True))
    count = len(ratios)
    reach = 0.98 * count**0.5
    low, high = ratios[max(0, int(count / 2 - reach))], ratios[min(count - 1, int(count / 2 + reach))]
    middle = ratios[count // 2]
    return max(high / middle, middle / low) - 1


def speedup(candidate: Sequence[float], other: Sequence[float], *, seed: int = 0) -> Ratio:
    """How many times faster the candidate is, with its 95 % interval; samples round by round."""
    return weighted_speedup([(candidate, other)], [1.0], seed=seed)
