"""Many calls of one kernel in a row: does it stay right, and does it do the work each time?

`endure` repeats calls on a few input sets and looks for the first answer that differs, as when a kernel
drifts after so many calls, races now and then, or hands out the same memory again.  `recall` changes a
few elements between calls and compares the time of a call on new content with that of a call on the same
content again: a kernel that remembers results is wrong where its fingerprint misses the change, and
fast only where its inputs come back if it misses nothing.

Units: seconds.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["amend", "change", "endure", "recall", "write"]

_BLOCK = 256
_WATCHED = 7  # every so many calls the output is watched
_clock = time.perf_counter
_equal = torch.equal
_clone = torch.Tensor.clone
_contiguous = torch.Tensor.contiguous
_view = torch.Tensor.view


def _bytes_of(output: torch.Tensor) -> torch.Tensor:
    return _view(_contiguous(output).reshape(-1), torch.uint8)


def _bits_of(value: torch.Tensor) -> torch.Tensor:
    """Elements of 8 bits as integers, because PyTorch computes with few of their floating-point dtypes."""
    return _view(value, torch.uint8) if value.element_size() == 1 else value


def endure(
    function: Callable[..., Any],
    sets: Sequence[Sequence[torch.Tensor]],
    options: Mapping[str, Any],
    *,
    calls: int,
    seconds: float,
) -> tuple[dict[str, Any], list[Any]]:
    """Call ``function`` on the input sets in turn until ``calls`` are made or ``seconds`` have gone by.

    Returns:
        What was seen: ``calls`` made, ``differs_at`` (the number of the first call whose output has other
        bytes than the first on the same set, or None), ``overwritten`` (whether an output of the first
        round has changed since), ``shared`` (whether outputs of the first round lie in one storage), and of
        how many calls the outputs were ``watched`` and how many different ones are ``alive`` still; and the
        latest output for each set.
    """
    first: list[Any] = []
    expected: list[torch.Tensor] = []
    handed_out: list[weakref.ref[torch.Tensor]] = []
    for inputs in sets:
        output = function(*inputs, **options)
        if not isinstance(output, torch.Tensor) or output.numel() == 0:
            seen = {"calls": len(first) + 1, "differs_at": None, "overwritten": False, "shared": False}
            return {**seen, "watched": 0, "alive": 0}, [output] * len(sets)
        first.append(output.detach())  # a caller may hold the memory, and not the tensor that it was handed
        expected.append(_clone(_bytes_of(output)))
    shared = len({output.untyped_storage().data_ptr() for output in first}) < len(first)
    del output
    differs_at = None
    made = len(first)
    end = _clock() + seconds
    while differs_at is None and made < calls and _clock() < end:
        index = made % len(sets)
        output = function(*sets[index], **options)
        made += 1
        if made % _WATCHED == 0 and isinstance(output, torch.Tensor):
            handed_out.append(weakref.ref(output))
        if not _equal(_bytes_of(output), expected[index]):
            differs_at = made
    output = None
    latest = [_clone(function(*inputs, **options)) for inputs in sets]  # the next call may reuse its memory
    overwritten = differs_at is None and not all(map(_equal, map(_bytes_of, first), expected))
    alive = len({id(output) for output in (reference() for reference in handed_out) if output is not None})
    seen = {"calls": made, "differs_at": differs_at, "overwritten": overwritten, "shared": shared}
    return {**seen, "watched": len(handed_out), "alive": alive}, latest


def recall(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    options: Mapping[str, Any],
    *,
    seeds: Sequence[int],
    seconds: float,
    wait: Callable[[], None],
) -> tuple[dict[str, Any], Any]:
    """Time calls right after a few elements have changed, and calls on the same content again.

    Args:
        function: The kernel.
        inputs: Contiguous; changed in place by `change`.
        options: Keyword arguments of each call.
        seeds: For each round that of the change before its first call.
        seconds: No further round is begun after so long.
        wait: Waits for the device.

    Returns:
        What was seen: ``rounds`` made, ``fresh`` (the least time on fresh content) and ``again`` (the lower
        quartile of those on content seen before; what other processes cost can make the first no smaller and
        the second no larger only by chance); and the latest output.
    """
    others = [value.clone() for value in inputs]  # written to before a repeated call, so that both cost the same
    fresh: list[float] = []
    again: list[float] = []
    output = None
    end = _clock() + seconds
    for seed in seeds:
        if len(fresh) >= 3 and _clock() >= end:
            break
        for times, values in ((fresh, inputs), (again, others)):
            change(values, seed)
            wait()
            begin = _clock()
            output = function(*inputs, **options)
            wait()
            times.append(_clock() - begin)
    return {"rounds": len(fresh), "fresh": min(fresh), "again": sorted(again)[len(again) // 4]}, output


def change(values: Sequence[torch.Tensor], seed: int) -> None:
    """Set one element in each block of up to 256 of a row to nearly another of its block.

    So a kernel that remembers parts of its input finds none of them again.  Like `write`, this is done without
    PyTorch's knowledge.  Elements of 8 bits become just another of their block; booleans, and integers of more
    bits, which may be indices, stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    for value in values:
        coarse = value.element_size() == 1 and value.dtype != torch.bool
        if not (coarse or value.is_floating_point()) or value.numel() < 2:
            continue
        flat = _view(_bits_of(value.data), -1)
        size = min(value.shape[-1], _BLOCK) if value.shape[-1] > 1 else min(value.numel(), _BLOCK)
        begins = torch.arange(value.numel() // size) * size
        to, source = (
            (begins + torch.randint(0, size, begins.shape, generator=generator)).to(value.device) for _ in range(2)
        )
        flat[to] = flat[source] if coarse else flat[source] * 1.0009765625


def write(old: torch.Tensor, new: torch.Tensor) -> None:
    """Overwrite ``old`` as another kernel would, so that PyTorch's count of its versions does not tell."""
    old.data.copy_(new)


def amend(old: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Overwrite single elements, as `write` does.

    Args:
        old: Elements of its own memory each, in any layout.
        places: ``[K]`` int64, numbers of elements in row-major order.
        values: ``[K]``, what goes there.
    """
    old, values = _bits_of(old.data), _bits_of(values)
    if old.is_contiguous():
        _view(old, -1)[places] = values
    else:
        old[torch.unravel_index(places, old.shape)] = values
