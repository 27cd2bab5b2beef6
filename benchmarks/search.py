"""What is the offline search agent worth? Lets it and a random search look for the best among measured kernels.

    python benchmarks/search.py record     # measures every kernel of the landscape: 10 minutes on 2 quiet cores
    python benchmarks/search.py compare [--seeds 100] [--experiments 8 16 32]

The landscape is the C++ rmsnorm starter with all values of its constants (504 kernels, 512 x 4096
float32), measured on a CPU; it lies in benchmarks/landscapes.  Both searches begin with the starter and
see times with 2 % of noise.  A candidate is kept when it seems more than 1 % faster.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autokernel import starters
from autokernel.agents.constants import replace, tunables
from autokernel.agents.protocol import Context, Exhausted
from autokernel.agents.search import SearchAgent
from autokernel.experiment import Experiment
from autokernel.history import blob_id
from autokernel.measurement import Ratio
from autokernel.target import Target, Timing

FILE = Path(__file__).with_name("landscapes") / "rmsnorm_cpp.json"
CHOICES: dict[str, list[Any]] = {
    "NUM_THREADS": [1, 2],
    "LANES": [1, 2, 4, 8, 16, 32, 64],
    "BLOCK_COLS": [16, 64, 256],
    "PREFETCH_ROWS": [0, 1, 2],
    "STREAM": [False, True],
    "UNROLL": [False, True],
}
NOISE = 0.02
TARGET = Target(
    reference="rmsnorm", operation="rmsnorm", tag="landscape", backend="cpp", device="cpu", dtype="float32",
    timing=(Timing(shape={"M": 512, "N": 4096}),),
)  # fmt: skip


def starter() -> str:
    """The starter, with the landscape's values in the comments of its constants."""
    lines = starters.source("rmsnorm", "cpp").splitlines()
    for index, line in enumerate(lines):
        name = line.partition(" = ")[0]
        if name in CHOICES:
            lines[index] = f"{line.partition('  #')[0]}  # tune: {', '.join(map(str, CHOICES[name]))}"
    return "\n".join(lines) + "\n"


def kernels() -> dict[str, str]:
    """All texts of the landscape by the values of their constants."""
    text = starter()
    found = {tunable.name: tunable for tunable in tunables(text)}
    texts = {}
    for values in itertools.product(*CHOICES.values()):
        changes = [(found[name], value) for name, value in zip(CHOICES, values, strict=True)]
        texts[" ".join(map(str, values))] = replace(text, changes)
    return texts


def record(rounds: int) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    sets = [(torch.randn(512, 4096, generator=generator), torch.ones(4096)) for _ in range(4)]
    functions = {}
    for key, text in kernels().items():
        namespace: dict[str, Any] = {"__name__": "kernel"}
        exec(compile(text, "kernel.py", "exec"), namespace)
        functions[key] = namespace["kernel_fn"]
    samples: dict[str, list[float]] = {key: [] for key in functions}
    order = list(functions)
    for number in range(rounds):
        random.shuffle(order)
        for key in order:
            begin = time.perf_counter()
            for index in range(2):
                functions[key](*sets[(number + index) % 4])
            samples[key].append((time.perf_counter() - begin) / 2 * 1e6)
    quick = {key: round(sorted(values)[rounds // 5], 1) for key, values in samples.items()}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps({"constants": CHOICES, "rounds": rounds, "quantile": 0.2, "us": quick}, indent=0) + "\n")
    print(f"{len(quick)} kernels, {min(quick.values()):.0f} to {max(quick.values()):.0f} us")


class RandomAgent:
    """Proposes any kernel of the landscape that was not judged yet."""

    def __init__(self, seed: int) -> None:
        self._order = list(kernels().values())
        random.Random(seed).shuffle(self._order)

    async def propose(self, context: Context) -> Any:
        for source in self._order:
            if blob_id(source) not in context.judged:
                return argparse.Namespace(source=source)
        raise Exhausted("all were judged")


def climb(agent: Any, us: dict[str, float], experiments: int, seed: int) -> list[float]:
    """Let an agent make experiments; returns the true time of the best kernel after each."""
    noise = random.Random(seed)
    texts, best = [starter()], 0
    done = [Experiment(number=0, decision="baseline", correctness="PASS", commit="0", blob=blob_id(texts[0]))]
    curve = [us[texts[0]]]
    while len(texts) <= experiments:
        context = Context(
            folder=Path(), target=TARGET, description="", signature="", kernel=texts[best], best=done[best],
            experiments=tuple(done), judged=frozenset(one.blob for one in done), comments=(), refused="",
            source=lambda number: texts[number], diff=lambda number: "", record=lambda number: {},
        )  # fmt: skip
        try:
            proposal = asyncio.run(agent.propose(context))
        except Exhausted:
            return curve + [curve[-1]] * (experiments + 1 - len(curve))
        ratio = us[texts[best]] / us[proposal.source] * math.exp(noise.gauss(0, NOISE / 2))
        number, kept = len(texts), ratio > 1.01 + NOISE
        texts.append(proposal.source)
        done.append(
            Experiment(
                number=number, decision="keep" if kept else "revert", correctness="PASS", commit=str(number),
                parent=str(best), blob=blob_id(proposal.source), speedups={"incumbent": Ratio(ratio, ratio, ratio)},
            )
        )  # fmt: skip
        best = number if kept else best
        curve.append(us[texts[best]])
    return curve


def compare(seeds: int, counts: list[int]) -> None:
    recorded = json.loads(FILE.read_text())["us"]
    us = {text: recorded[key] for key, text in kernels().items()}
    least, start = min(us.values()), us[starter()]
    print(f"{len(us)} kernels; the starter takes {start:.0f} us, the best {least:.0f} us ({start / least:.2f}x)")
    for name, make in (("search", lambda seed: SearchAgent()), ("random", RandomAgent)):
        curves = [climb(make(seed), us, max(counts), seed) for seed in range(seeds)]
        for count in counts:
            gains = sorted(start / curve[count] for curve in curves)
            found = sum(curve[count] < 1.03 * least for curve in curves)
            print(
                f"{name}, {count} experiments: {statistics.median(gains):.2f}x the starter in the median "
                f"(10 % below {gains[len(gains) // 10]:.2f}x), within 3 % of the best in {found} of {seeds}"
            )
        reached = statistics.median(next((n for n, t in enumerate(c) if t < 1.03 * least), math.inf) for c in curves)
        when = f"after {reached:.0f}" if reached < math.inf else f"not reached in {max(counts)}"
        print(f"{name}: 3 % from the best {when} experiments in the median")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("--rounds", type=int, default=20)
    comparing = commands.add_parser("compare")
    comparing.add_argument("--seeds", type=int, default=100)
    comparing.add_argument("--experiments", type=int, nargs="+", default=[8, 16, 32])
    args = parser.parse_args()
    if args.command == "record":
        record(args.rounds)
    else:
        compare(args.seeds, args.experiments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
