"""Take timing samples of several kernels, interleaved, in the runner.

On a GPU every contestant's calls are captured in a CUDA graph that walks over input sets which
together exceed the L2 cache several times; a sample is one replay, timed by device events, and the
replays of the contestants alternate.  So a sample holds no launch overhead and no warm cache, and
slow drifts of the clock hit all contestants alike.  On a CPU a sample is a few calls by the wall
clock, alternating in the same way.

Only samples are taken here; intervals are computed by `statistics`, and what the samples are worth
is decided by the judge (`paired`).  Units: microseconds per call.
"""

from __future__ import annotations

import functools
import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["GraphTimer", "Timer", "WallTimer", "make_timer"]

_clock = time.perf_counter
_synchronize = torch.cuda.synchronize
SAMPLE_US = 200.0
Kernel = Callable[..., Any]


def make_timer(
    contestants: Mapping[str, Kernel],
    sets: Sequence[Sequence[Any]],
    options: Mapping[str, Any],
    device: torch.device,
) -> Timer:
    """Warm the contestants up on every input set and return the timer that fits the device.

    Args:
        contestants: The kernels by role; ``candidate`` must be one of them.
        sets: Input sets, all of the same shapes; consecutive calls use consecutive sets.
        options: Keyword arguments of each call.
        device: Where the inputs are.
    """
    bound: dict[str, list[Callable[[], Any]]] = {
        role: [functools.partial(function, *inputs, **options) for inputs in sets]
        for role, function in contestants.items()
    }
    for calls in bound.values():
        for call in calls:
            call()
    if device.type == "cpu":
        return WallTimer(bound)
    _synchronize()
    try:
        return GraphTimer(bound)
    except Exception as error:
        _synchronize()
        timer = EventTimer(bound)
        timer.notes.append(f"timed without a graph, launches included: {type(error).__name__}: {str(error)[:200]}")
        return timer


class Timer:
    """Shared by the timers: alternation, and the outputs that the judge asked to see."""

    method = ""

    def __init__(self, calls: Mapping[str, list[Callable[[], Any]]]) -> None:
        self.calls = dict(calls)
        self.roles = list(calls)
        self.notes: list[str] = []
        self.kept: list[tuple[int, Any]] = []
        self.calls_per_sample = {role: self._enough(role) for role in self.roles}
        self._next = dict.fromkeys(self.roles, 0)

    def _enough(self, role: str) -> int:
        """How many calls make a sample long enough for the clock."""
        begin = _clock()
        for call in self.calls[role]:
            call()
        self._wait()
        per_call_us = (_clock() - begin) / len(self.calls[role]) * 1e6
        return max(1, min(1000, round(SAMPLE_US / max(per_call_us, 0.01))))

    def _wait(self) -> None:
        pass

    def sample(self, *, rounds: int, seed: int, keep_set: int, keep: Sequence[float]) -> dict[str, list[float]]:
        """Return ``rounds`` samples for each role; round ``i`` holds one of each, in random order.

        Some of the candidate's outputs are kept in ``kept``, with their set, in place of those kept before.

        Args:
            rounds: How many samples of each contestant.
            seed: Of the order within each round.
            keep_set: The input set whose outputs are kept.
            keep: How far into the calls on that set, from 0 to 1, are those whose outputs are kept; a graph,
                whose calls are all of one kind, keeps one output.
        """
        raise NotImplementedError

    def call_samples(self, *, rounds: int, seed: int) -> dict[str, list[float]]:
        """Return the time that a caller sees per call: launches queued back to back, then a wait."""
        order = random.Random(seed)
        samples: dict[str, list[float]] = {role: [] for role in self.roles}
        count = {role: max(self.calls_per_sample[role], min(50, 2 * len(self.calls[role]))) for role in self.roles}
        for _round in range(rounds):
            for role in order.sample(self.roles, len(self.roles)):
                self._wait()
                begin = _clock()
                self._run(role, count[role])
                self._wait()
                samples[role].append((_clock() - begin) / count[role] * 1e6)
        return samples

    def spin(self, role: str, calls: int, keep: int) -> float:
        """Run one contestant ``calls`` times, wait for the device, return the seconds; a judge watches too.

        The outputs of the last ``keep`` calls are kept in ``kept``: they show what many calls have changed.
        """
        begin = _clock()
        self._run(role, calls - keep)
        self.kept = []
        for _call in range(keep):
            output = self._run(role, 1)
            self.kept.append(((self._next[role] - 1) % len(self.calls[role]), output))
        self._wait()
        return _clock() - begin

    def _run(self, role: str, count: int) -> Any:
        calls, start = self.calls[role], self._next[role]
        size = len(calls)
        output = None
        for index in range(start, start + count):
            output = calls[index % size]()
        self._next[role] = (start + count) % size
        return output


class WallTimer(Timer):
    """Samples by the wall clock, for a CPU."""

    method = "wall"

    def sample(self, *, rounds: int, seed: int, keep_set: int, keep: Sequence[float]) -> dict[str, list[float]]:
        order = random.Random(seed)
        samples: dict[str, list[float]] = {role: [] for role in self.roles}
        kept: dict[str, list[tuple[int, Any]]] = {role: [] for role in self.roles}  # of all, so that all cost the same
        self.kept = kept["candidate"]
        stops = {role: self._calls_to_keep(role, rounds, keep_set, keep) for role in self.roles}
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            for number in range(rounds):
                for role in order.sample(self.roles, len(self.roles)):
                    count = self.calls_per_sample[role]
                    stop = stops[role].get(number, 0)
                    begin = _clock()
                    output = self._run(role, stop)
                    self._run(role, count - stop)
                    samples[role].append((_clock() - begin) / count * 1e6)
                    if stop:
                        kept[role].append((keep_set, output))
                    del output
        finally:
            if collecting:
                gc.enable()
        return samples

    def _calls_to_keep(self, role: str, rounds: int, keep_set: int, keep: Sequence[float]) -> dict[int, int]:
        """For some rounds, the number of calls after which the output is kept."""
        count, sets = self.calls_per_sample[role], len(self.calls[role])
        places = range((keep_set - self._next[role]) % sets, rounds * count, sets)
        chosen = [places[int(part * len(places))] for part in keep] if places else []
        return {place // count: place % count + 1 for place in chosen}


class EventTimer(Timer):
    """Samples by device events around back-to-back launches, where no graph can be captured."""

    method = "events"

    def _wait(self) -> None:
        _synchronize()

    def _replay(self, role: str) -> int:
        count = max(self.calls_per_sample[role], len(self.calls[role]))
        self._run(role, count)
        return count

    def sample(self, *, rounds: int, seed: int, keep_set: int, keep: Sequence[float]) -> dict[str, list[float]]:
        order = random.Random(seed)
        samples: dict[str, list[float]] = {role: [] for role in self.roles}
        for _round in range(rounds):
            spans = {}
            for role in order.sample(self.roles, len(self.roles)):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                count = self._replay(role)
                end.record()
                spans[role] = (begin, end, count)
            _synchronize()
            for role, (begin, end, count) in spans.items():
                samples[role].append(_elapsed_ms(begin, end) * 1e3 / count)
        self.kept = [(keep_set, self._output_of(keep_set))]
        return samples

    def _output_of(self, chosen: int) -> Any:
        return self.calls["candidate"][chosen]()


class GraphTimer(EventTimer):
    """Samples by replaying CUDA graphs.  The outputs that are kept are those of the replays."""

    method = "graph"

    def __init__(self, calls: Mapping[str, list[Callable[[], Any]]]) -> None:
        super().__init__(calls)
        self._graphs: dict[str, tuple[torch.cuda.CUDAGraph, list[Any], int]] = {}
        for role in self.roles:
            repeats = max(1, round(self._device_repeats(role)))
            self._graphs[role] = self._capture(role, repeats)
        for role in self.roles:
            self._replay(role)
        _synchronize()

    def _device_repeats(self, role: str) -> float:
        graph, _outputs, count = self._capture(role, 1)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        _synchronize()
        replay_us = _elapsed_ms(begin, end) * 1e3
        return min(SAMPLE_US / max(replay_us, 1.0), 2000 / count)

    def _capture(self, role: str, repeats: int) -> tuple[torch.cuda.CUDAGraph, list[Any], int]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in self.calls[role][:2]:
                call()
        torch.cuda.current_stream().wait_stream(stream)
        _synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            outputs = [call() for _ in range(repeats) for call in self.calls[role]]
        return graph, outputs[-len(self.calls[role]) :], len(outputs)

    def _replay(self, role: str) -> int:
        graph, _outputs, count = self._graphs[role]
        graph.replay()
        return count

    def _output_of(self, chosen: int) -> Any:
        return self._graphs["candidate"][1][chosen]


def _elapsed_ms(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    return float(_event_elapsed(begin, end))


_event_elapsed = torch.cuda.Event.elapsed_time
