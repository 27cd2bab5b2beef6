"""How inputs lie in memory: the same values, the strides that the name promises, garbage between."""

from __future__ import annotations

import pytest
import torch

from autokernel.errors import UsageError
from autokernel.verifier.layouts import BATCH_LAYOUTS, LAYOUTS, check_layout, lay_out, name_of

X = torch.arange(3 * 5 * 7, dtype=torch.float32).reshape(3, 5, 7)


def laid_out(layout: str, value: torch.Tensor = X) -> torch.Tensor:
    return lay_out((value,), layout, (0,))[0]


def gaps(value: torch.Tensor) -> torch.Tensor:
    """The elements of the storage that the view does not show."""
    storage = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    shown = torch.zeros(storage.numel(), dtype=torch.bool)
    shown.as_strided(value.shape, value.stride(), value.storage_offset()).fill_(True)
    return storage[~shown]


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "broadcast"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 1), (8,), (4, 1)])
def test_every_layout_but_broadcast_keeps_the_values(layout, shape):
    value = torch.randn(shape)

    assert torch.equal(laid_out(layout, value), value)


def test_broadcast_repeats_the_first_entry_with_stride_zero():
    view = laid_out("broadcast")

    assert view.stride(0) == 0
    assert view.shape == X.shape
    assert all(torch.equal(part, X[0]) for part in view)


@pytest.mark.parametrize(
    ("layout", "stride", "offset"),
    [
        ("contiguous", (35, 7, 1), 0),
        ("padded", (50, 10, 1), 0),
        ("strided", (70, 14, 2), 0),
        ("transposed", (35, 1, 5), 0),
        ("offset", (35, 7, 1), 1),
    ],
)
def test_the_strides_are_those_that_the_name_promises(layout, stride, offset):
    view = laid_out(layout)

    assert (view.stride(), view.storage_offset()) == (stride, offset)


@pytest.mark.parametrize("layout", ["padded", "strided", "offset"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gaps_hold_nan_so_that_ignoring_a_stride_shows(layout, dtype):
    between = gaps(laid_out(layout, X.to(dtype)))

    assert between.numel() > 0
    assert between.isnan().all()


def test_integers_can_be_laid_out_too():
    targets = torch.tensor([3, -100, 7])

    view = laid_out("strided", targets)

    assert torch.equal(view, targets)
    assert view.stride() == (2,)
    assert (gaps(view) == -1).all()


def test_only_the_inputs_that_callers_may_pass_as_views_are_laid_out():
    first, second = torch.randn(4, 4), torch.randn(4, 4)

    a, b = lay_out((first, second), "strided", (1,))

    assert a is first
    assert b.stride() == (8, 2)


def test_a_layout_with_numbers_is_that_of_these_inputs_alone():
    one, other = lay_out((X, X), "transposed:1", (0, 1))

    assert one.is_contiguous()
    assert other.transpose(-1, -2).is_contiguous()
    assert torch.equal(other, X)


@pytest.mark.parametrize("layout", ["transposed", "permuted", "cut", "padded", "contiguous"])
def test_a_tensor_is_told_by_its_strides_which_layout_it_has(layout):
    view = laid_out(layout)

    assert name_of(view.shape, view.stride()) == layout


@pytest.mark.parametrize("view", [laid_out("strided"), X[:, ::2], X.permute(2, 0, 1), X[0, 0, ::2]])
def test_strides_of_no_layout_that_is_told_apart_have_no_name(view):
    assert name_of(view.shape, view.stride()) == ""


def test_a_layout_that_inputs_cannot_be_timed_in_is_refused():
    for layout in ("", "sideways", "broadcast", "transposed:2", "transposed:x"):
        with pytest.raises(UsageError, match="none that inputs are timed in"):
            check_layout(layout, (0, 1))
    for layout in (*LAYOUTS, *BATCH_LAYOUTS, "permuted:0,1"):
        if layout != "broadcast":
            check_layout(layout, (0, 1))
