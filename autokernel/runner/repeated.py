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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["change", "endure", "recall", "write"]

_clock = time.perf_counter
_equal = torch.equal
_clone = torch.Tensor.clone
_contiguous = torch.Tensor.contiguous
_view = torch.Tensor.view


def _bytes_of(output: torch.Tensor) -> torch.Tensor:
    return _view(_contiguous(output).reshape(-1), torch.uint8)


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
        bytes than the first on the same set, or None) and ``overwritten`` (whether an output of the first
        round has changed since); and the latest output for each set.
    """
    first: list[Any] = []
    expected: list[torch.Tensor] = []
    for inputs in sets:
        output = function(*inputs, **options)
        if not isinstance(output, torch.Tensor) or output.numel() == 0:
            return {"calls": len(first) + 1, "differs_at": None, "overwritten": False}, [output] * len(sets)
        first.append(output)
        expected.append(_clone(_bytes_of(output)))
    differs_at = None
    made = len(first)
    end = _clock() + seconds
    while differs_at is None and made < calls and _clock() < end:
        index = made % len(sets)
        output = function(*sets[index], **options)
        made += 1
        if not _equal(_bytes_of(output), expected[index]):
            differs_at = made
    latest = [_clone(function(*inputs, **options)) for inputs in sets]  # the next call may reuse its memory
    overwritten = differs_at is None and not all(map(_equal, map(_bytes_of, first), expected))
    return {"calls": made, "differs_at": differs_at, "overwritten": overwritten}, latest


def recall(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    options: Mapping[str, Any],
    *,
    changes: Sequence[Sequence[Sequence[int]]],
    seconds: float,
    wait: Callable[[], None],
) -> tuple[dict[str, Any], Any]:
    """Time calls right after a few elements have changed, and calls on the same content again.

    Args:
        function: The kernel.
        inputs: Contiguous; changed in place as `change` says.
        options: Keyword arguments of each call.
        changes: For each round what changes before its first call; at least three rounds.
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
    for one in changes:
        if len(fresh) >= 3 and _clock() >= end:
            break
        for times, values in ((fresh, inputs), (again, others)):
            change(values, one)
            wait()
            begin = _clock()
            output = function(*inputs, **options)
            wait()
            times.append(_clock() - begin)
    return {"rounds": len(fresh), "fresh": min(fresh), "again": sorted(again)[len(again) // 4]}, output


def change(values: Sequence[torch.Tensor], changes: Sequence[Sequence[int]]) -> None:
    """Set element ``to`` of input ``index`` to nearly that at ``source``, for each (index, to, source).

    Like `write`, without PyTorch's knowledge.
    """
    for index, to, source in changes:
        flat = _view(values[index].data, -1)
        flat[to] = flat[source].item() * 1.0009765625


def write(old: torch.Tensor, new: torch.Tensor) -> None:
    """Overwrite ``old`` as another kernel would, so that PyTorch's count of its versions does not tell."""
    old.data.copy_(new)
