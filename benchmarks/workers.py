"""Several workers beside one: experiments per hour, and whether their timings agree.

    python benchmarks/workers.py [--op rmsnorm] [--device auto] [--workers 0,1,2] [--experiments 24]

For each number of workers a run of its own makes its experiments, after some that do not count (the
baseline, and one for each worker).  0 is the evaluator in this process, without Dask.  With ``same`` each
candidate is the best kernel under another comment, so every experiment is the same work; ``search`` is the
offline search.

Then the starter is timed beside PyTorch in this process and, with several seeds, on each worker of the
largest number: the time of a call and the speedup with its 95 % interval.  Workers on a CPU share it, so
there they take turns with their timings and disturb each other with everything else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autokernel.evaluator import Evaluation, Evaluator
from autokernel.policy import PolicySettings
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from autokernel.verdict import Stage
from autokernel.workers import DaskEvaluator, open_workers
from benchmarks.loop import Same


@contextlib.contextmanager
def judge_of(workers: int, device: str) -> Iterator[DaskEvaluator | None]:
    """The judge with so many workers; None, a session's own, for 0."""
    if workers == 0:
        yield None
        return
    with open_workers(f"local:{workers}", device=device) as client:
        yield DaskEvaluator(client)


async def per_hour(args: argparse.Namespace, workers: int, root: str) -> float:
    """Experiments per hour of a run on so many workers."""
    policy = PolicySettings(plateau=None, near_peak=None)
    agent: Any = Same(0.0) if args.agent == "same" else args.agent
    with judge_of(workers, args.device) as judge:
        session = Session.create(
            args.op, device=args.device, root=root, name=f"workers-{workers}", agent=agent, policy=policy,
            evaluator=judge,
        )  # fmt: skip
        async with session:
            await session.run(experiments=max(1, workers))
            begin = time.monotonic()
            summary = await session.run(experiments=args.experiments)
            seconds = time.monotonic() - begin
            judged_by = {one.worker or "this process" for one in session.experiments}
        if len(judged_by) < workers:
            print(f"only {', '.join(sorted(judged_by))} judged")
    return 3600 * summary.tally.total / seconds


def agreement(args: argparse.Namespace, workers: int, source: str) -> None:
    """Print the starter's time and speedup in this process and on each worker."""

    def timed(judge: Evaluator | DaskEvaluator, seed: int) -> Evaluation:
        return judge.evaluate(source, seed=seed, stages=[Stage.SMOKE])

    with Evaluator(args.op, device=args.device) as local:
        found = [("this process", timed(local, seed)) for seed in range(args.repeats)]
    with (
        open_workers(f"local:{workers}", device=args.device) as client,
        DaskEvaluator(client, args.op, device=args.device) as judge,
        ThreadPoolExecutor(workers) as threads,
    ):
        evaluations = threads.map(lambda seed: timed(judge, seed), range(args.repeats * workers))
        found += [(str(one.verdict.details["worker"]), one) for one in evaluations]
    print(f"\n{'judged by':40} {'us':>9} {'over PyTorch':>13}  95 % interval")
    for name, one in sorted(found, key=lambda entry: entry[0]):
        if one.measurement is None:
            print(f"{name:40} not timed: {one.verdict.reason or 'the interpreter has no speed'}")
            continue
        ratio = one.measurement.speedups["pytorch"]
        print(f"{name:40} {one.measurement.latency_us:9.2f} {ratio.value:13.3f}  {ratio.low:.3f} to {ratio.high:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="rmsnorm")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", default="0,1,2", help="numbers of workers, such as 0,1,2")
    parser.add_argument("--experiments", type=int, default=24)
    parser.add_argument("--agent", default="same", choices=("same", "search"))
    parser.add_argument("--repeats", type=int, default=3, help="timings of the starter on each worker")
    args = parser.parse_args()
    counts = [int(word) for word in args.workers.split(",")]
    with tempfile.TemporaryDirectory() as root:
        print(f"{'workers':>7} {'experiments per hour':>21} {'over the first':>15}")
        first = 0.0
        for count in counts:
            rate = asyncio.run(per_hour(args, count, root))
            first = first or rate
            print(f"{count:7} {rate:21.0f} {rate / first:15.2f}", flush=True)
        run = RunFolder(f"{root}/workers-{counts[0]}")
        source, target = run.source(0), run.target
    print(f"{target.operation} {target.backend} {target.dtype} on {target.device}, agent {args.agent}")
    if max(counts) > 0 and args.repeats > 0:
        agreement(args, max(counts), source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
