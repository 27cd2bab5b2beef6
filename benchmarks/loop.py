"""The whole loop, many times: seconds per experiment, memory of the driver, false keeps.

    python benchmarks/loop.py [--op rmsnorm] [--experiments 300] [--device auto] [--agent same|search]

With ``same`` an agent proposes the best kernel with another comment in its first line, so each
experiment is a candidate identical to its incumbent, and every keep is a false one.  An experiment
here is everything: proposal, commit, five stages, paired timing, decision, row.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autokernel.agents import Context, Exhausted, Proposal
from autokernel.policy import PolicySettings
from autokernel.session import Session


class Same:
    """Proposes the best kernel again, under another comment."""

    name = "same"

    async def propose(self, context: Context) -> Proposal:
        number = len(context.experiments)
        await asyncio.sleep(self.think_seconds)
        return Proposal(source=f"# experiment {number}\n{context.kernel}", hypothesis="No change, so no gain.")

    def __init__(self, think_seconds: float) -> None:
        self.think_seconds = think_seconds


def resident_mb() -> float:
    """Memory of this process in MB."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def repeat(args: argparse.Namespace, root: str) -> None:
    policy = PolicySettings(plateau=None, near_peak=None)
    agent = Same(args.think) if args.agent == "same" else args.agent
    session = Session.create(
        args.op, backend=args.backend, device=args.device, dtype=args.dtype, root=root, agent=agent, policy=policy
    )
    seconds: list[float] = []
    memory: dict[int, float] = {}
    begin = time.monotonic()
    async with session:
        for number in range(1, args.experiments + 1):
            step = time.monotonic()
            try:
                experiment = await session.step()
            except Exhausted as exhausted:
                print(exhausted)
                break
            if number > 1:  # the first step also measures the baseline
                seconds.append(time.monotonic() - step - (args.think if args.agent == "same" else 0))
            if number in (20, args.experiments) or number % 50 == 0:
                memory[number] = resident_mb()
            if number <= 20 or number in memory:
                print(
                    f"{number}: {experiment.decision}, {resident_mb():.0f} MB, {time.monotonic() - begin:.1f} s",
                    flush=True,
                )
            if args.minutes is not None and time.monotonic() - begin > 60 * args.minutes:
                break
        decisions = [experiment.decision for experiment in session.experiments]
        kept = [experiment for experiment in session.experiments if experiment.decision == "keep"]
        target = session.target
    print(
        f"{target.operation} {target.backend} {target.dtype} on {target.device}, {len(decisions) - 1} experiments by "
        f"{args.agent}: kept {decisions.count('keep')}, reverted {decisions.count('revert')}; seconds per experiment "
        f"median {statistics.median(seconds):.2f}, 90 % below {sorted(seconds)[int(0.9 * len(seconds))]:.2f}; memory "
        + ", ".join(f"{value:.0f} MB after {number}" for number, value in memory.items())
    )
    for experiment in kept:
        print(f"kept {experiment.number}: {experiment.speedups.get('incumbent')}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="rmsnorm")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--experiments", type=int, default=300)
    parser.add_argument("--agent", default="same")
    parser.add_argument("--think", type=float, default=0.0, help="seconds that the agent 'same' takes to think")
    parser.add_argument("--minutes", type=float, default=None, help="stop early after this many minutes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(repeat(args, root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
