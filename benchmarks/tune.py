"""Find the best constants of a kernel for given sizes, by timing quickly: no judge, one process, CUDA graphs.

    python benchmarks/tune.py softmax --config M=4096,N=50257 --config M=8192,N=8192 --minutes 1 --json softmax.json

For each configuration the kernel's tunable constants (see `autokernel.agents.constants`) are varied: first one at
a time from the best so far until none helps, then at random until the time is over.  Texts that launch the same
things on this configuration are timed once.  Other processes compile ahead.  What does not compile, does not fit
the device, or computes something else than the first text is skipped, and said.

What is found is a suggestion: put it into the kernel by hand, then `autokernel verify` and `autokernel bench` it.
Times are medians of GPU time per call; on a CPU, of wall time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import importlib.util
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from autokernel import ops, starters, timing, tuned
from autokernel.agents.constants import Tunable, Value, replace, tunables
from autokernel.ops.spec import KernelSpec, dtype_named

Point = tuple[tuple[str, Value], ...]
FOLDER = Path(tempfile.gettempdir()) / f"autokernel-tune-{os.getpid()}"
COMPILE_SECONDS = 90.0
BETTER = 0.997  # a time below so much of the best one is an improvement


@dataclasses.dataclass(frozen=True)
class Work:
    """One configuration: an operation's sizes and dtype on a device."""

    operation: str
    shape: tuple[tuple[str, int], ...]
    dtype: str
    device: str

    @property
    def label(self) -> str:
        return " ".join([*(f"{name}={size}" for name, size in self.shape), self.dtype])

    @property
    def spec(self) -> KernelSpec:
        return ops.get(self.operation)

    def inputs(self, seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator(device=self.device).manual_seed(seed)
        return self.spec.make_inputs(dict(self.shape), dtype_named(self.dtype), generator)


def load(text: str) -> Callable[..., torch.Tensor]:
    """Import a kernel's text from a file, which Triton needs, and return its ``kernel_fn``."""
    name = f"tune_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{name}.py"
    if not file.exists():
        file.write_text(text)
    description = importlib.util.spec_from_file_location(name, file)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    function: Callable[..., torch.Tensor] = module.kernel_fn
    return function


_INPUTS: dict[Work, tuple[torch.Tensor, ...]] = {}  # of a compiling process


def try_once(work: Work, text: str) -> str:
    """Compile a text and call it once, in a process of its own; return what went wrong, or nothing."""
    try:
        if work not in _INPUTS:
            _INPUTS.clear()
            _INPUTS[work] = work.inputs(0)
        load(text)(*_INPUTS[work])
        if work.device != "cpu":
            torch.cuda.synchronize()
    except Exception as error:
        return said(error)
    return ""


def said(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1][:160]}"


class Compilers:
    """Processes that compile ahead of the timing; forked before this one has touched the GPU."""

    def __init__(self, count: int) -> None:
        self.pool: concurrent.futures.ProcessPoolExecutor | None = None
        if count > 0:
            context = multiprocessing.get_context("fork")
            self.pool = concurrent.futures.ProcessPoolExecutor(count, mp_context=context)
            list(self.pool.map(time.sleep, [0.2] * count))  # all of them are there now

    def problems(self, work: Work, texts: Sequence[str]) -> list[str]:
        """Compile the texts; for each one what is wrong with it, or nothing."""
        if self.pool is None:
            return ["" for _text in texts]
        try:
            futures = [self.pool.submit(try_once, work, text) for text in texts]
            return [future.result(timeout=COMPILE_SECONDS) for future in futures]
        except (concurrent.futures.process.BrokenProcessPool, concurrent.futures.TimeoutError) as error:
            print(f"  compiling ahead ended ({said(error)}); going on without", flush=True)
            self.close()
            return ["" for _text in texts]

    def close(self) -> None:
        """End the processes, also those that hang."""
        if self.pool is not None:
            processes = list((getattr(self.pool, "_processes", None) or {}).values())
            self.pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            self.pool = None


@contextmanager
def recorded(found: list[Any]) -> Iterator[None]:
    """Note launches instead of making them."""
    from autokernel.backends.cuda import CudaKernel

    def plain(values: Sequence[Any]) -> list[str]:
        return ["tensor" if isinstance(value, torch.Tensor) else str(value) for value in values]

    def note_triton(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        names, values = list(kwargs), plain(list(kwargs.values()))
        found.append((kernel.fn.__name__, str(grid), plain(args), sorted(zip(names, values, strict=True))))

    def note_cuda(kernel: Any, grid: Any, block: Any, shared: int, *args: Any) -> None:
        found.append((kernel.name, str(grid), str(block), shared, plain(args), kernel.module.options))

    patches: list[tuple[Any, str, Any]] = [(CudaKernel, "_launch", note_cuda)]
    try:
        from triton.runtime.jit import JITFunction

        patches.append((JITFunction, "run", note_triton))
    except ImportError:
        pass
    before = [(owner, name, getattr(owner, name)) for owner, name, _new in patches]
    for owner, name, new in patches:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


class Tuning:
    """The search on one configuration."""

    def __init__(self, work: Work, text: str, only: Sequence[str], compilers: Compilers) -> None:
        self.work, self.text, self.compilers = work, text, compilers
        found = tunables(text)
        self.tunables: dict[str, Tunable] = {one.name: one for one in found if not only or one.name in only}
        self.base: Point = tuple((one.name, one.value) for one in self.tunables.values())
        self.times: dict[Point, float] = {}
        self.problems: dict[Point, str] = {}
        self.known: dict[str, Point] = {}
        size = sum(value.numel() * value.element_size() for value in work.inputs(0))
        count = 2 if work.device == "cpu" else max(2, min(64, -(-(150 << 20) // size)))
        self.sets = [work.inputs(seed) for seed in range(count)]
        self.expected: torch.Tensor | None = None

    def source(self, point: Point) -> str:
        return replace(self.text, [(self.tunables[name], value) for name, value in point])

    def fingerprint(self, point: Point) -> str:
        """What the point launches on this configuration; the text itself where that cannot be seen."""
        launches: list[Any] = []
        try:
            with recorded(launches):
                load(self.source(point))(*self.sets[0])
        except Exception as error:
            return f"refused: {said(error)}"
        return repr(launches) if launches else repr(point)

    def try_all(self, points: Sequence[Point], until: float) -> None:
        """Time those points that launch something new, and print each."""
        fresh = []
        for point in points:
            key = self.fingerprint(point)
            if key not in self.known:
                self.known[key] = point
                fresh.append(point)
        problems = self.compilers.problems(self.work, [self.source(point) for point in fresh])
        for point, problem in zip(fresh, problems, strict=True):
            if self.times and time.monotonic() > until:
                return
            self.note(point, problem)

    def note(self, point: Point, problem: str) -> None:
        if not problem:
            try:
                self.times[point] = self.timed(point)
            except Exception as error:
                problem = said(error)
        best = min(self.times.values(), default=0.0)
        if problem:
            self.problems[point] = problem
            print(f"      skipped  {self.described(point)}: {problem}", flush=True)
        else:
            mark = "  best" if self.times[point] == best else ""
            print(f"  {self.times[point]:8.2f} us  {self.described(point)}{mark}", flush=True)

    def timed(self, point: Point) -> float:
        function = load(self.source(point))
        output = function(*self.sets[0])
        if self.expected is None:
            self.expected = output.float()
        elif not torch.allclose(output.float(), self.expected, rtol=0.02, atol=0.02):
            raise ValueError("its result differs from that of the first text")
        timer = timing.make_timer({"candidate": function}, self.sets, {}, torch.device(self.work.device))
        return statistics.median(timer.sample(rounds=9, seed=0, keep_set=0, keep=[])["candidate"])

    def described(self, point: Point) -> str:
        changed = [
            f"{name}={value!r}" for (name, value), (_n, old) in zip(point, self.base, strict=True) if value != old
        ]
        return " ".join(changed) or "as it is"

    @property
    def best(self) -> Point:
        return min(self.times, key=self.times.__getitem__)

    def neighbours(self, point: Point) -> list[Point]:
        return [
            tuple((n, choice if n == name else v) for n, v in point)
            for name, value in point
            for choice in self.tunables[name].choices
            if choice != value
        ]

    def at_random(self, order: random.Random, count: int) -> list[Point]:
        """Points that change two or three constants of the best, or all of them."""
        points = []
        for _number in range(count):
            names = set(order.sample(list(self.tunables), min(len(self.tunables), order.choice([2, 2, 3, 99]))))
            points.append(tuple((n, order.choice(self.tunables[n].choices) if n in names else v) for n, v in self.best))
        return points

    def run(self, seconds: float) -> None:
        until, order = time.monotonic() + seconds, random.Random(0)
        self.try_all([self.base], until)
        if self.base not in self.times:
            print("  the kernel as it is does not run here; nothing to compare with", flush=True)
            return
        improving = bool(self.tunables)
        while improving and time.monotonic() < until:
            before = self.times[self.best]
            self.try_all(self.neighbours(self.best), until)
            improving = self.times[self.best] < BETTER * before
        for _round in range(200):
            if time.monotonic() > until or not self.tunables:
                return
            self.try_all(self.at_random(order, 32), until)

    def report(self) -> dict[str, Any]:
        """The outcome as JSON-ready data."""
        spec, shape = self.work.spec, dict(self.work.shape)
        itemsize = dtype_named(self.work.dtype).itemsize
        moved = spec.bytes_moved(shape, itemsize) if spec.bytes_moved else 0.0
        flops = spec.flops(shape) if spec.flops else 0.0
        order = sorted(self.times, key=self.times.__getitem__)
        first = self.times.get(self.base)
        return {
            "config": self.work.label,
            "base_us": first,
            "best_us": self.times[order[0]] if order else None,
            "best": dict(order[0]) if order else None,
            "gb_per_s": moved / self.times[order[0]] / 1e3 if order else None,
            "tflop_per_s": flops / self.times[order[0]] / 1e6 if order else None,
            "points": [{"us": self.times[point], **dict(point)} for point in order],
            "skipped": [{"why": why, **dict(point)} for point, why in self.problems.items()],
        }


def print_table(reports: Sequence[Mapping[str, Any]], base: Mapping[str, Value]) -> None:
    print(
        f"\n{'configuration':<44}{'as it is':>10}{'best':>10}{'gain':>7}{'GB/s':>8}{'TFLOP/s':>9}  constants",
        flush=True,
    )
    for one in reports:
        if not one["best"]:
            print(f"{one['config']:<44}  not timed: {len(one['skipped'])} texts were skipped")
            continue
        changed = " ".join(f"{name}={value!r}" for name, value in one["best"].items() if base[name] != value)
        print(
            f"{one['config']:<44}{one['base_us']:>10.2f}{one['best_us']:>10.2f}"
            f"{one['base_us'] / one['best_us'] - 1:>7.1%}{one['gb_per_s']:>8.0f}{one['tflop_per_s']:>9.1f}  "
            f"{changed or 'as it is'}"
        )


def shape_of(text: str) -> tuple[tuple[str, int], ...]:
    try:
        return tuple((name.strip(), int(size)) for name, size in (item.split("=") for item in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write it as M=4096,N=4096") from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", choices=ops.names())
    parser.add_argument("--config", action="append", type=shape_of, help="sizes, as M=4096,N=4096; repeatable")
    parser.add_argument("--kernel", type=Path, help="a kernel file; else the tuned kernel, else the starter")
    parser.add_argument("--backend", default="triton", choices=("triton", "cuda", "cpp"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--only", default="", help="constants to vary, with commas; all when not given")
    parser.add_argument("--minutes", type=float, default=1.0, help="for all configurations together")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="compiling processes")
    parser.add_argument("--json", type=Path, help="write all that was timed")
    return parser.parse_args()


def source_of(args: argparse.Namespace) -> str:
    if args.kernel is not None:
        return str(args.kernel.read_text())
    have = args.backend in tuned.backends(args.operation)
    return (tuned if have else starters).source(args.operation, args.backend)


def main() -> int:
    args = arguments()
    text = source_of(args)
    compilers = Compilers(0 if args.device == "cpu" else args.workers)  # before anything asks for the GPU
    device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    spec, reports = ops.get(args.operation), []
    shapes = args.config or [
        tuple(one.items()) for one in (spec.cpu_timing_shapes if device == "cpu" else spec.timing_shapes)
    ]
    torch.set_grad_enabled(False)
    end = time.monotonic() + 60 * args.minutes
    base: dict[str, Value] = {}
    try:
        for number, shape in enumerate(shapes):
            work = Work(args.operation, shape, args.dtype, device)
            print(f"{args.operation} {work.label}", flush=True)
            try:
                tuning = Tuning(work, text, [name for name in args.only.split(",") if name], compilers)
                base = dict(tuning.base)
                tuning.run(max(1.0, end - time.monotonic()) / (len(shapes) - number))
            except RuntimeError as error:
                print(f"  ended: {said(error)}", flush=True)
                continue
            reports.append(tuning.report())
            if args.json:
                args.json.write_text(json.dumps({"operation": args.operation, "configs": reports}, indent=1))
            del tuning
    finally:
        compilers.close()
    print_table(reports, base)
    return 0 if any(one["best"] for one in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
