"""What a language model as agent costs beside the model: size of its prompts, time from a verdict to the next request.

    python benchmarks/agents.py prompts          # tokens, estimated, for each operation and backend
    python benchmarks/agents.py turnaround       # seconds from the end of a judgement to the next request

The turnaround is taken in a run with a real session, real git and the real client against an HTTP server
in this process; the judge is a script, because how long judging takes is another question
(`benchmarks/loop.py`).  Needs no key, no network and no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autokernel import ops, starters
from autokernel.agents.briefing import Briefing
from autokernel.agents.openai import OpenAIAgent
from autokernel.agents.settings import ModelSettings
from autokernel.agents.subject import subject_of
from autokernel.session import Session
from tests.agents.contexts import context_of
from tests.agents.model_server import ModelServer, says, whole_file
from tests.scripted import ScriptedEvaluator, kernel

EXPERIMENTS = 30


def prompts() -> None:
    """Print a row for each operation and backend: the prompt before the first experiment, nothing left out."""
    print(f"{'operation':<18}{'backend':<9}{'tokens':>8}")
    for name in ops.names():
        for backend in starters.backends(name):
            context = context_of(Path.cwd(), starters.source(name, backend), operation=name, backend=backend)
            prompt, _ = Briefing(subject_of(context.target), ModelSettings(prompt_tokens=100_000)).prompt(context)
            print(f"{name:<18}{backend:<9}{prompt.tokens:>8}")


class _Judge(ScriptedEvaluator):
    """Notes when each judgement ends."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[float] = []

    def evaluate(self, source: str, **options):
        try:
            return super().evaluate(source, **options)
        finally:
            self.ended.append(time.monotonic())


async def turnaround() -> None:
    """Print quantiles over a run of experiments of which every tenth is kept."""
    answers = [says(whole_file(kernel(1.0 + (n // 10) / 10, extra=f"# {n}"))) for n in range(EXPERIMENTS)]
    judge = _Judge()
    with ModelServer(answers) as server, tempfile.TemporaryDirectory() as root:
        agent = OpenAIAgent("model", server.base_url)
        with Session.create(
            "rmsnorm", device="cpu", root=root, start=kernel(1.0), agent=agent, evaluator=judge
        ) as session:
            await session.step()
            for _ in range(EXPERIMENTS):
                await session.step()
        arrivals = server.arrivals
    gaps = [asked - ended for ended, asked in zip(judge.ended[1:], arrivals[1:], strict=False)]
    low, middle, high = (statistics.quantiles(gaps, n=10)[at] for at in (0, 4, 8))
    print(f"{len(gaps)} requests after a verdict: median {middle:.3f} s, deciles {low:.3f} to {high:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prompts", "turnaround"])
    if parser.parse_args().what == "prompts":
        prompts()
    else:
        asyncio.run(turnaround())


if __name__ == "__main__":
    main()
