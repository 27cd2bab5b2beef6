"""`profile`: run a model a few times, and say where its device time goes and what of it can be recovered.

Eight passes by default: one to warm up, three undisturbed by the clock, one recorded, three under
torch.profiler.  The model, its gradients, buffers and random generators are as before afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from autokernel import hardware
from autokernel.errors import ModelFailed, UsageError
from autokernel.profiling import patterns, ranking, timeline
from autokernel.profiling.calls import Call
from autokernel.profiling.graph import Graph
from autokernel.profiling.grouping import group
from autokernel.profiling.report import ProfileReport, Totals
from autokernel.profiling.stream import Recorder
from autokernel.profiling.subject import Subject
from autokernel.profiling.targets import Layout, Target
from autokernel.profiling.timeline import Timeline

__all__ = ["profile"]

Progress = Callable[[str], None]


def profile(
    model: Any,
    inputs: Any,
    *,
    backward: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    train: bool | None = None,
    repeats: int = 3,
    floors: bool = True,
    trace: str | Path | None = None,
    memory: str | Path | None = None,
    progress: Progress | None = None,
) -> ProfileReport:
    """Profile a model and rank its operations by the device time that can be recovered.

    Args:
        model: An ``nn.Module``, or a function of tensors, on the device that counts.
        inputs: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        backward: Profile forward and backward; by default forward only, without gradients.
        loss: Makes a scalar of the output; by default the output's ``loss``, or the sum of the means of
            its floating-point tensors.
        train: True for training mode, False for evaluation mode; by default the mode that the model is in.
        repeats: Timed passes of each kind, at least 1; ``2 * repeats + 2`` passes in all.
        floors: Measure the device's peaks (once, then cached) and give floors and gains.
        trace: Write a Chrome trace there (``.json`` or ``.json.gz``; chrome://tracing or Perfetto reads it),
            with a scope for each module and recorded call.
        memory: Write a snapshot of the GPU's memory there, for pytorch.org/memory_viz; one more pass.
        progress: Called with what is being done.

    Returns:
        The report.  Shares of its targets and what is unclaimed add up to 1.

    Raises:
        UsageError: The model is on the meta device, is compiled, or the arguments do not fit.
        ModelFailed: The model raised, or there was not enough memory; the message says in which module.
    """
    if repeats < 1:
        raise UsageError(f"repeats is {repeats}; give at least 1")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch's profiler reports each start and stop on stderr
    begin = time.perf_counter()
    say = progress or (lambda text: None)
    subject = Subject(model, inputs, backward=backward, loss=loss, train=train)
    if memory is not None and subject.device.type != "cuda":
        raise UsageError("a memory snapshot needs a GPU; on a CPU the trace shows allocations (--trace FILE)")
    with subject.kept():
        passes = _Passes(subject, say)
        passes.warm_up()
        walls = [passes.by_the_clock() for _ in range(repeats)]
        calls, tagged = passes.recorded(None if trace is None else Path(trace))
        plain = [passes.under_profiler(calls) for _ in range(repeats)]
        if memory is not None:
            passes.memory_snapshot(Path(memory))
        training = subject.module.training if subject.module else False
    say("reading the passes")
    times = timeline.combine(tagged, plain, gpu=subject.device.type == "cuda")
    line = hardware.roofline(subject.device) if floors else None
    targets = _targets(calls, times, line)
    totals = _totals(targets, times, _middle(walls, subject))
    report = _report(subject, passes, targets, times, totals, line)
    if max(walls) > 1.5 * min(walls):
        scattered = f"passes took from {min(walls) / 1e3:.1f} to {max(walls) / 1e3:.1f} ms: the machine is busy"
        report = dataclasses.replace(report, notes=(*report.notes, scattered))
    return dataclasses.replace(report, training=training, seconds=round(time.perf_counter() - begin, 2))


def _middle(walls: list[float], subject: Subject) -> float:
    return statistics.median(walls) if subject.device.type == "cuda" else min(walls)


def _targets(calls: list[Call], times: Timeline, line: hardware.Roofline | None) -> tuple[Target, ...]:
    forward = Graph([call for call in calls if call.phase == "forward"])
    graph = Graph(calls)
    targets = group(calls, graph, patterns.find(forward), times)
    return ranking.rank(targets, times.device_us, line)


def _totals(targets: tuple[Target, ...], times: Timeline, wall_us: float) -> Totals:
    recognised = sum(target.device_us for target in targets if target.operation)
    listed = sum(target.device_us for target in targets if not target.operation)
    return Totals(
        wall_us=wall_us,
        device_us=times.device_us,
        busy_us=min(times.busy_us, wall_us),
        host_us=max(0.0, wall_us - times.busy_us),
        recognised_us=recognised,
        listed_us=listed,
        unclaimed_us=max(0.0, times.device_us - recognised - listed),
    )


def _report(
    subject: Subject,
    passes: _Passes,
    targets: tuple[Target, ...],
    times: Timeline,
    totals: Totals,
    line: hardware.Roofline | None,
) -> ProfileReport:
    module = subject.module
    notes = [*times.notes]
    if subject.changes_inputs:
        notes.append("the model changes its inputs in place; each pass was given a fresh copy")
    if line is not None and not line.measured.steady:
        notes.append("the device was busy while its peaks were measured; floors are too high by some percent")
    if times.busy_us > totals.wall_us:
        notes.append("passes under the profiler were slower than those by the clock; host time is not known")
    return ProfileReport(
        model=subject.name,
        device=hardware.detect(subject.device).to_dict(),
        inputs=tuple(_layout(one) for one in subject.tensors()),
        training=False,
        backward=subject.backward,
        targets=targets,
        totals=totals,
        passes=passes.made,
        seconds=0.0,
        notes=tuple(notes),
        aligned=times.aligned,
        peak_memory_bytes=passes.peak_memory_bytes,
        parameters=sum(one.numel() for one in module.parameters()) if module is not None else 0,
        roofline=None if line is None else line.to_dict(),
        subject=subject,
    )


def _layout(tensor: Tensor) -> Layout:
    strided = tensor.layout == torch.strided
    return Layout(tuple(tensor.shape), tuple(tensor.stride()) if strided else (), str(tensor.dtype)[6:])


class _Passes:
    """Makes the passes and counts them."""

    def __init__(self, subject: Subject, say: Progress) -> None:
        self.subject, self._say = subject, say
        self.made = 0
        self.peak_memory_bytes = 0
        self._gpu = subject.device.type == "cuda"

    def _pass(self, what: str) -> Callable[[], Any]:
        self._say(what)
        run = self.subject.prepare()
        self._wait()
        self.made += 1
        return run

    def _wait(self) -> None:
        """Wait for the device.

        Raises:
            ModelFailed: A kernel of the model failed, which a GPU tells only now.
        """
        if self._gpu:
            try:
                torch.cuda.synchronize(self.subject.device)
            except RuntimeError as error:
                raise ModelFailed(f"a kernel of {self.subject.name} failed: {str(error).splitlines()[0]}") from error

    def warm_up(self) -> None:
        if self._gpu:
            torch.cuda.reset_peak_memory_stats(self.subject.device)
        self._pass("warming up")()
        self._wait()
        if self._gpu:
            self.peak_memory_bytes = torch.cuda.max_memory_allocated(self.subject.device)

    def by_the_clock(self) -> float:
        """Wall time of one pass in microseconds."""
        run = self._pass("timing a pass")
        begin = time.perf_counter()
        run()
        self._wait()
        return (time.perf_counter() - begin) * 1e6

    @contextlib.contextmanager
    def _profiler(self, **options: Any) -> Iterator[torch.profiler.profile]:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._gpu else [])]
        with torch.profiler.profile(activities=activities, acc_events=True, **options) as profiler:
            yield profiler
            self._wait()

    def recorded(self, trace: Path | None) -> tuple[list[Call], timeline.PassTimes]:
        """The pass whose operators are recorded."""
        run = self._pass("recording the operators")
        recorder = Recorder()
        with self._profiler(profile_memory=trace is not None) as profiler, recorder.recording(self.subject.module):
            run()
        if not recorder.calls:
            raise UsageError(f"{self.subject.name} calls no PyTorch operator that can be seen, so there is no profile")
        if trace is not None:
            _write_trace(profiler, trace)
        return recorder.calls, timeline.tagged_pass(profiler.events(), recorder.calls, gpu=self._gpu)

    def under_profiler(self, calls: list[Call]) -> timeline.PassTimes:
        """An undisturbed pass under the profiler."""
        run = self._pass("profiling a pass")
        with self._profiler() as profiler:
            run()
        return timeline.plain_pass(profiler.events(), calls, gpu=self._gpu)

    def memory_snapshot(self, file: Path) -> None:
        """Write every allocation of one pass."""
        run = self._pass("recording the memory")
        torch.cuda.memory._record_memory_history(max_entries=200_000)
        try:
            run()
            self._wait()
            snapshot = torch.cuda.memory._snapshot()
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        file.write_bytes(pickle.dumps(snapshot))


def _write_trace(profiler: torch.profiler.profile, file: Path) -> None:
    if not file.name.endswith((".json", ".json.gz")):
        raise UsageError(f"a trace is written as .json or .json.gz, not {file.name!r}")
    profiler.export_chrome_trace(str(file))
