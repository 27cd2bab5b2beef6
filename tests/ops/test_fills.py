"""Value patterns: what they promise about the values that they make."""

from __future__ import annotations

import pytest
import torch

from autokernel.ops import fills


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [(40, 300), (2, 5, 7), (3, 1)])
def test_each_row_has_one_peak_that_stands_out(dtype, size):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(size, generator=generator).to(dtype)

    (peaked,) = fills.lone_peaks(0, 200.0)((x,), {}, generator)

    assert peaked.dtype is dtype and peaked.shape == x.shape
    changed = (peaked != x).reshape(-1, size[-1])
    assert changed.sum(dim=1).tolist() == [1] * changed.shape[0]
    rows, old = peaked.double().reshape(-1, size[-1]), x.double().reshape(-1, size[-1])
    heights = torch.tensor([200.0, 400.0, 600.0], dtype=torch.float64).repeat(len(rows))[: len(rows)]
    assert torch.allclose(rows.amax(dim=1) - old.amax(dim=1), heights, atol=3.0)


def test_peaks_stand_at_either_end_of_the_row_and_of_blocks_of_lanes():
    x = torch.zeros(12, 300)

    (peaked,) = fills.lone_peaks(0)((x,), {}, torch.Generator().manual_seed(4))

    assert peaked.argmax(dim=1).tolist() == [15, 0, 299, 16, 31, 32, 63, 64, 127, 128, 298, 1]
    flat = peaked.reshape(-1)
    assert flat[300] > peaked[0].max() and flat[3 * 300 - 1] > peaked[3].max()


def test_descending_rows_fall_evenly_by_the_span():
    x = torch.randn(3, 241)

    (ramp,) = fills.descending(0, 120.0)((x,), {}, torch.Generator())

    assert ramp.dtype is x.dtype
    assert torch.allclose(ramp.diff(dim=-1), torch.full((3, 240), -0.5))
    assert ramp[:, 0].tolist() == [60.0] * 3
