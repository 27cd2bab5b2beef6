"""How fast the whole model is, with and without kernels, timed in turn.

Contestants: the plain model (``original``), the model with kernels (``integrated``), both under
``torch.compile`` on request, and on a GPU both as CUDA graphs.  Each round takes one sample of
each, in random order; speedups come from ratios within the rounds.  While the plain model is timed,
no kernel and no guard is in it.

Wall time is what a caller waits, launches included.  Device time is taken by device events around
the calls; of a CUDA graph's replay it is the time that the device works, without launches.
Units: microseconds per call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from autokernel import statistics
from autokernel.integration.integrated import Integration
from autokernel.integration.trees import Call, clone, leaves
from autokernel.measurement import Ratio

__all__ = ["ModelTiming", "TimedModel", "time_model"]

_ROUNDS = 8
_SAMPLE_SECONDS = 0.02
_HALF_WIDTH = 0.01
_PAIRS = (
    ("integrated", "original"),
    ("integrated", "compiled"),
    ("compiled integrated", "compiled"),
    ("graph integrated", "graph"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedModel:
    """One contestant: median, 0.2 and 0.8 quantile of the wall time, median of the device time."""

    name: str
    wall_us: float
    low_us: float
    high_us: float
    device_us: float | None
    samples_us: tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelTiming:
    """All contestants on one input set.

    Attributes:
        models: By name.
        speedups: Of wall times, as ``integrated over original``, with 95 % intervals.
        device_speedups: The same of device times; empty on a CPU.
        rounds: How many rounds were taken.
        notes: Which contestant could not be timed, and why.
    """

    models: Mapping[str, TimedModel]
    speedups: Mapping[str, Ratio]
    device_speedups: Mapping[str, Ratio]
    rounds: int
    notes: tuple[str, ...] = ()


@dataclasses.dataclass
class _Contestant:
    name: str
    call: Callable[[], Any]
    inputs: _Inputs
    plain: bool
    repeats: int = 1
    wall: list[float] = dataclasses.field(default_factory=list)
    device: list[float] = dataclasses.field(default_factory=list)


class _Inputs:
    """One contestant's own copy of the inputs, put back before each sample if the model changes them."""

    def __init__(self, call: Call) -> None:
        self.call = clone(call)
        self._pairs = [
            (old, new)
            for (_path, old), (_same, new) in zip(leaves(tuple(call)), leaves(tuple(self.call)), strict=True)
            if isinstance(old, Tensor)
        ]
        self.changed = False

    def look(self) -> None:
        """Find out whether a call has changed them."""
        self.changed = any(not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in self._pairs)

    def reset(self) -> None:
        if self.changed:
            for old, new in self._pairs:
                new.copy_(old)


def time_model(
    integration: Integration, call: Call, *, compiled: bool | str = False, graphs: bool = True, seconds: float = 5.0
) -> ModelTiming:
    """Time a model with and without its kernels.

    Args:
        integration: Of the model.
        call: The inputs; each contestant gets a copy of its own, which it may change.
        compiled: Time ``torch.compile`` of both models too; a string names its backend.
        graphs: On a GPU, time CUDA graphs of both models too.
        seconds: What the samples may take, eight rounds at least.
    """
    gpu = any(kernel.device == "cuda" for kernel in integration.kernels)
    notes: list[str] = []
    contestants = []
    with torch.no_grad():
        for name, plain, make in _makers(integration.model, compiled, graphs and gpu):
            inputs = _Inputs(call)
            with _as(integration, plain):
                try:
                    run = make(inputs)
                    run()
                    inputs.look()
                    repeats = 1 if inputs.changed else _repeats(run, gpu)
                    contestants.append(_Contestant(name, run, inputs, plain, repeats=repeats))
                except Exception as error:
                    notes.append(f"{name}: not timed: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        rounds = _sample(integration, contestants, gpu, seconds)
    return _summary(contestants, rounds, notes)


Maker = tuple[str, bool, Callable[[_Inputs], Callable[[], Any]]]


def _makers(model: nn.Module, compiled: bool | str, graphs: bool) -> Iterator[Maker]:
    """Name, whether it is the plain model, and how the contestant's call is made."""
    for plain in (True, False):
        yield ("original" if plain else "integrated"), plain, functools.partial(_bound, model)
    if compiled:
        backend = compiled if isinstance(compiled, str) else "inductor"
        for plain in (True, False):
            name = "compiled" if plain else "compiled integrated"
            yield name, plain, lambda inputs: _bound(torch.compile(model, backend=backend), inputs)
    if graphs:
        for plain in (True, False):
            yield ("graph" if plain else "graph integrated"), plain, lambda inputs: _graph(_bound(model, inputs))


def _bound(model: Callable[..., Any], inputs: _Inputs) -> Callable[[], Any]:
    args, kwargs = inputs.call
    return lambda: model(*args, **kwargs)


def _graph(run: Callable[[], Any]) -> Callable[[], Any]:
    """Capture a call in a CUDA graph and return its replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _warmup in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = run()

    def replay(_kept: Any = output) -> None:
        graph.replay()

    return replay


@contextlib.contextmanager
def _as(integration: Integration, plain: bool) -> Iterator[None]:
    with integration.suspended() if plain else contextlib.nullcontext():
        yield


def _repeats(run: Callable[[], Any], gpu: bool) -> int:
    """How many calls make a sample long enough for the clock."""
    begin = time.perf_counter()
    run()
    _wait(gpu)
    return max(1, min(1000, round(_SAMPLE_SECONDS / max(time.perf_counter() - begin, 1e-7))))


def _wait(gpu: bool) -> None:
    if gpu:
        torch.cuda.synchronize()


def _sample(integration: Integration, contestants: list[_Contestant], gpu: bool, seconds: float) -> int:
    order = random.Random(0)
    begin = time.perf_counter()
    rounds = 0
    while rounds < _ROUNDS or (time.perf_counter() - begin < seconds and not _exact(contestants)):
        for one in order.sample(contestants, len(contestants)):
            with _as(integration, one.plain):
                _take(one, gpu)
        rounds += 1
    return rounds


def _take(one: _Contestant, gpu: bool) -> None:
    one.inputs.reset()
    _wait(gpu)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if gpu else []
    begin = time.perf_counter()
    if events:
        events[0].record()
    for _call in range(one.repeats):
        one.call()
    if events:
        events[1].record()
    _wait(gpu)
    one.wall.append((time.perf_counter() - begin) / one.repeats * 1e6)
    if events:
        one.device.append(events[0].elapsed_time(events[1]) / one.repeats * 1e3)


def _exact(contestants: list[_Contestant]) -> bool:
    named = {one.name: one.wall for one in contestants}
    pairs = [(named[a], named[b]) for a, b in _PAIRS if a in named and b in named]
    return all(statistics.relative_half_width(a, b) <= _HALF_WIDTH for a, b in pairs)


def _summary(contestants: list[_Contestant], rounds: int, notes: list[str]) -> ModelTiming:
    models = {
        one.name: TimedModel(
            name=one.name,
            wall_us=statistics.quantile(one.wall, 0.5),
            low_us=statistics.quantile(one.wall, 0.2),
            high_us=statistics.quantile(one.wall, 0.8),
            device_us=statistics.quantile(one.device, 0.5) if one.device else None,
            samples_us=tuple(one.wall),
        )
        for one in contestants
    }
    named = {one.name: one for one in contestants}
    pairs = [(a, b) for a, b in _PAIRS if a in named and b in named]
    return ModelTiming(
        models=models,
        speedups={f"{a} over {b}": statistics.speedup(named[a].wall, named[b].wall) for a, b in pairs},
        device_speedups={
            f"{a} over {b}": statistics.speedup(named[a].device, named[b].device) for a, b in pairs if named[a].device
        },
        rounds=rounds,
        notes=tuple(notes),
    )
