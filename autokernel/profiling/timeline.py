"""How long each operator call takes on the device, from torch.profiler.

On a GPU the profiler knows by correlation which operator launched a kernel; the call's time is that of its
kernels.  On a CPU the operator is the kernel, and the call's time is that of the operator, its inner
operators included.  Views, allocations and the wrapping of composite operators are host work on either.

Two kinds of pass are read.  In the *tagged* pass the recorder names each call in the trace, so that times
belong to calls for certain; but between the calls Python is busy recording.  The *plain* passes run
undisturbed; their events are matched to the recorded calls by order.  If a plain pass does not show all
recorded operators that compute, in the recorded order, its times are not used, and the tagged pass serves.
Views are left out of this: how many of them a composite operator makes depends on who is watching.

Units: microseconds.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from torch._C._autograd import DeviceType

from autokernel.profiling.calls import Call
from autokernel.profiling.stream import CALL_TAG, MODULE_TAG, OWN_TAG

__all__ = ["LooseKernel", "PassTimes", "Timeline", "combine", "plain_pass", "tagged_pass"]


@dataclasses.dataclass(frozen=True)
class LooseKernel:
    """A kernel that Python launched within a module, outside of any operator (a Triton kernel, for example)."""

    name: str
    path: str
    phase: str
    us: float


@dataclasses.dataclass(frozen=True)
class PassTimes:
    """What one profiled pass shows.

    Attributes:
        call_us: Device time of each call, or None if the pass does not match the recorded calls.
        launches: Kernels that each call launched; on a CPU 1 for a call that computes.
        device_us: Time of all that ran on the device.
        busy_us: Time during which anything ran on the device: overlapping kernels count once.
        loose: Kernels outside of any operator.
        kernels: Names of the kernels of each call.
        mismatch: Why the pass does not match.
    """

    call_us: tuple[float, ...] | None
    launches: tuple[int, ...]
    device_us: float
    busy_us: float
    loose: tuple[LooseKernel, ...] = ()
    kernels: tuple[tuple[str, ...], ...] = ()
    mismatch: str = ""

    @property
    def unclaimed_us(self) -> float:
        """Device time that belongs to no recorded call."""
        return max(0.0, self.device_us - sum(self.call_us or ()))


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The times that the report is made of.

    Attributes:
        call_us: Device time by call.
        launches: Kernels by call.
        kernels: Names of the kernels by call; empty on a CPU.
        loose: Kernels outside of any operator.
        device_us: All that ran on the device in one pass.
        busy_us: The device was busy for that long.
        aligned: The times come from undisturbed passes.
        notes: What a reader has to know.
    """

    call_us: tuple[float, ...]
    launches: tuple[int, ...]
    kernels: tuple[tuple[str, ...], ...]
    loose: tuple[LooseKernel, ...]
    device_us: float
    busy_us: float
    aligned: bool
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Cost:
    """Device time of one call, and the kernels that it launched."""

    us: float = 0.0
    launches: int = 0
    kernels: tuple[str, ...] = ()


_NO_COST = _Cost()


def tagged_pass(events: Iterable[Any], calls: Sequence[Call], *, gpu: bool) -> PassTimes:
    """Read the pass in which the recorder named each call."""
    reader = _Reader(events, gpu=gpu)
    costs = [_NO_COST] * len(calls)
    found: set[int] = set()
    for event in reader.walk():
        if not event.name.startswith(CALL_TAG):
            continue
        index = int(event.name[len(CALL_TAG) :])
        found.add(index)
        costs[index] = reader.cost(event, calls[index], children_only=True)
    mismatch = ""
    if len(found) != len(calls):
        mismatch = f"the profiler shows {len(found)} of {len(calls)} recorded calls"
    loose = tuple(reader.loose())
    return _times(reader, costs, loose, mismatch, complete=True)


def plain_pass(events: Iterable[Any], calls: Sequence[Call], *, gpu: bool) -> PassTimes:
    """Read an undisturbed pass, whose computing operators must be the recorded ones in the recorded order."""
    reader = _Reader(events, gpu=gpu)
    costs = [_NO_COST] * len(calls)
    expected = [call for call in calls if not call.is_view]
    position, missed = 0, 0.0
    stack = list(reversed(reader.roots))
    while stack:
        event = stack.pop()
        if position < len(expected) and _same_operator(event.name, expected[position].name):
            call = expected[position]
            costs[call.index] = reader.cost(event, call)
            position += 1
            continue
        if not event.cpu_children and not gpu and event.name.startswith("aten::") and not _hollow(event.name):
            missed += float(event.time_range.elapsed_us())
        stack += reversed(reader.children(event))
    mismatch = ""
    if position < len(expected):
        name = expected[position].name
        mismatch = f"call {position} of {len(expected)}, {name}, does not come where it was recorded"
    return _times(reader, costs, (), mismatch, complete=not mismatch, missed_us=missed)


def combine(tagged: PassTimes, plain: Sequence[PassTimes], *, gpu: bool) -> Timeline:
    """Put the passes together, call by call; where no plain pass matches, take the tagged one, and say so.

    On a GPU the median over the passes counts; on a CPU the fastest, since other work on the machine can
    only lengthen a call.
    """
    notes = []
    if tagged.mismatch:
        notes.append(f"times may be incomplete: {tagged.mismatch}")
    usable = [one for one in plain if one.call_us is not None]
    if len(usable) < len(plain):
        reason = next(one.mismatch for one in plain if one.call_us is None)
        used = f"only {len(usable)} of {len(plain)} passes were used" if usable else "the recorded pass was used"
        notes.append(f"passes differ in the operators that they call ({reason}); {used}")
    sources = usable or [tagged]
    columns = zip(*(one.call_us for one in sources if one.call_us is not None), strict=True)
    call_us = tuple(_middle(column, gpu=gpu) for column in columns)
    loose_us = sum(kernel.us for kernel in tagged.loose)
    if tagged.loose:
        notes.append(f"{len(tagged.loose)} kernels ({loose_us:.0f} us) were launched outside of PyTorch's operators")
    device_us = sum(call_us) + max(loose_us, _middle([one.unclaimed_us for one in sources], gpu=gpu))
    return Timeline(
        call_us=call_us,
        launches=sources[0].launches,
        kernels=sources[0].kernels,
        loose=tagged.loose,
        device_us=device_us,
        busy_us=_middle([one.busy_us for one in sources], gpu=gpu) if gpu else device_us,
        aligned=bool(usable),
        notes=tuple(notes),
    )


def _middle(values: Sequence[float], *, gpu: bool) -> float:
    return statistics.median(values) if gpu else min(values)


def _times(
    reader: _Reader,
    costs: Sequence[_Cost],
    loose: tuple[LooseKernel, ...],
    mismatch: str,
    *,
    complete: bool,
    missed_us: float = 0.0,
) -> PassTimes:
    times = tuple(cost.us for cost in costs)
    device_us = reader.device_us if reader.gpu else sum(times) + missed_us
    return PassTimes(
        call_us=times if complete else None,
        launches=tuple(cost.launches for cost in costs),
        device_us=device_us,
        busy_us=reader.busy_us if reader.gpu else device_us,
        loose=loose,
        kernels=tuple(cost.kernels for cost in costs),
        mismatch=mismatch,
    )


# Host work that the recorder never sees, or sees as views.
_HOLLOW = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "as_strided", "resolve_conj", "resolve_neg", "result_type", "item"),
        *("to", "view", "_unsafe_view", "reshape", "_reshape_alias", "contiguous", "alias", "detach", "lift_fresh"),
        *("t", "transpose", "permute", "expand", "slice", "select", "squeeze", "unsqueeze", "split", "chunk", "unbind"),
        *("is_nonzero", "_local_scalar_dense", "set_", "narrow", "expand_as", "view_as", "size", "numel", "dropout"),
    )
)


def _same_operator(one: str, other: str) -> bool:
    """True for ``add`` and ``add_`` too: autograd adds gradients up in place only if nobody else holds them."""
    return one.rstrip("_") == other.rstrip("_")


def _hollow(name: str) -> bool:
    return name.removeprefix("aten::") in _HOLLOW


class _Reader:
    """The events of one pass as a tree of host events, with the kernels that hang on them."""

    def __init__(self, events: Iterable[Any], *, gpu: bool) -> None:
        self.gpu = gpu
        events = list(events)
        host = [event for event in events if event.device_type == DeviceType.CPU]
        on_device = [event for event in events if event.device_type != DeviceType.CPU and not _is_annotation(event)]
        self.roots = sorted((event for event in host if event.cpu_parent is None), key=_start)
        spans = sorted((event.time_range.start, event.time_range.end) for event in on_device)
        own_us = sum(kernel.duration for event in host if event.name.startswith(OWN_TAG) for kernel in _kernels(event))
        self.device_us = sum(end - start for start, end in spans) - own_us
        self.busy_us = _union(spans) - own_us

    def children(self, event: Any) -> list[Any]:
        return sorted(event.cpu_children, key=_start)

    def walk(self) -> Iterable[Any]:
        stack = list(reversed(self.roots))
        while stack:
            event = stack.pop()
            yield event
            stack += reversed(self.children(event))

    def cost(self, event: Any, call: Call, *, children_only: bool = False) -> _Cost:
        """Device time, number of kernels and their names for the call whose event (or scope) this is."""
        if self.gpu:
            kernels = list(_kernels(event))
            return _Cost(float(sum(k.duration for k in kernels)), len(kernels), tuple(k.name for k in kernels))
        if call.is_view:
            return _NO_COST
        parts = event.cpu_children if children_only else [event]
        return _Cost(float(sum(part.time_range.elapsed_us() for part in parts)), 1, ())

    def loose(self) -> Iterable[LooseKernel]:
        """Kernels on a module's scope or on autograd's own events, outside of calls and of the recorder's own work."""
        if not self.gpu:
            return
        stack = [(event, "", "forward") for event in reversed(self.roots)]
        while stack:
            event, path, phase = stack.pop()
            if event.name.startswith((CALL_TAG, OWN_TAG)):
                continue
            if event.name.startswith(MODULE_TAG):
                path = event.name[len(MODULE_TAG) :]
            if event.name.startswith("autograd::engine"):
                phase = "backward"
            for kernel in event.kernels:
                if not _is_tag(kernel.name):
                    yield LooseKernel(kernel.name, path, phase, float(kernel.duration))
            stack += [(child, path, phase) for child in reversed(self.children(event))]


def _subtree(event: Any) -> Iterable[Any]:
    stack = [event]
    while stack:
        one = stack.pop()
        yield one
        stack += one.cpu_children


def _kernels(event: Any) -> Iterable[Any]:
    return (kernel for part in _subtree(event) for kernel in part.kernels if not _is_tag(kernel.name))


def _is_tag(name: str) -> bool:
    return name.startswith((CALL_TAG, MODULE_TAG, OWN_TAG))


def _is_annotation(event: Any) -> bool:
    """True for the shadow that a host scope throws on the device's timeline; it is no kernel."""
    return bool(getattr(event, "is_user_annotation", False)) or _is_tag(event.name)


def _start(event: Any) -> tuple[float, float]:
    return event.time_range.start, -event.time_range.end


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Length of the union of intervals that are sorted by their start."""
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
