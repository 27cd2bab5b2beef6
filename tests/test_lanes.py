"""Several candidates judged at once: rows stay in order, and a kept kernel beat the one that it replaces."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time

import pytest

from autokernel import results
from autokernel.agents.search import SearchAgent
from autokernel.errors import RunnerLost
from autokernel.journal import Journal
from autokernel.session import Session
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel, number, wait_for


class Lanes(ScriptedEvaluator):
    """Judges ``lanes`` kernels at once; one that says ``AFTER = n`` takes until n were judged, or some seconds."""

    def __init__(self, lanes: int = 3, seconds: float = 0.0) -> None:
        super().__init__(seconds)
        self.lanes = lanes
        self.at_once = self.most_at_once = 0
        self.beside: list[tuple[str, str | None]] = []
        self._guard = threading.Lock()

    def evaluate(self, source, *, incumbent=None, seed=None, compiled=False):
        with self._guard:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.beside.append((source, incumbent))
        try:
            least, end = number(source, "AFTER", 0), time.monotonic() + 3
            while len(self.judged) < least and time.monotonic() < end:
                time.sleep(0.01)
            return super().evaluate(source, incumbent=incumbent)
        finally:
            with self._guard:
                self.at_once -= 1


def new(tmp_path, sources, evaluator, **options):
    options = {"agent": ScriptedAgent(list(sources)), "start": kernel(1.0), **options}
    return Session.create("rmsnorm", device="cpu", root=tmp_path, evaluator=evaluator, name="run", **options)


def rows(session):
    return results.load(session.path / "results.tsv")


def on_branch(session):
    """The numbers of the experiments on the run's branch, the latest first."""
    call = ["git", "-C", str(session.path), "log", "--format=%(trailers:key=Experiment,valueonly,separator=%x2C)"]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()


SLOW_FIRST = kernel(1.2, extra="AFTER = 2")  # the baseline, and one more


async def test_as_many_are_judged_at_once_as_there_are_lanes_and_decided_in_order(tmp_path):
    judge = Lanes(3, seconds=0.1)
    slow_first = kernel(1.2, extra="AFTER = 4")
    sources = [slow_first, *(kernel(0.5, extra=f"X = {at}") for at in range(7))]
    with new(tmp_path, sources, judge) as session:
        summary = await session.run(experiments=8)

        assert judge.most_at_once == 3
        assert [row.experiment for row in rows(session)] == list(range(9))
        assert summary.tally.total == 8
        assert len(judge.judged) == 9
        assert judge.judged.index(slow_first) == 4, "the others went on while the first was judged"


async def test_a_kernel_that_beat_the_old_best_only_is_judged_again_and_reverted(tmp_path):
    judge = Lanes(2)
    with new(tmp_path, [SLOW_FIRST, kernel(1.1)], judge) as session:
        await session.run(experiments=2)

        assert [one.decision for one in session.experiments] == ["baseline", "keep", "revert"]
        assert judge.beside[1:] == [
            (SLOW_FIRST, kernel(1.0)), (kernel(1.1), kernel(1.0)), (kernel(1.1), SLOW_FIRST)
        ]  # fmt: skip
        assert session.experiments[2].speedups["incumbent"].value == pytest.approx(1.1 / 1.2)
        assert [event["experiment"] for event in session.folder.events() if event["kind"] == "rebased"] == [2]


async def test_two_that_are_kept_lie_on_each_other(tmp_path):
    with new(tmp_path, [SLOW_FIRST, kernel(1.5)], Lanes(2)) as session:
        await session.run(experiments=2)

        assert [one.decision for one in session.experiments] == ["baseline", "keep", "keep"]
        assert session.experiments[2].parent == session.experiments[1].commit
        assert session.experiments[2].speedups["incumbent"].value == pytest.approx(1.5 / 1.2)
        assert on_branch(session) == ["2", "1", "0"]
        assert (session.path / "kernel.py").read_text() == kernel(1.5)


async def test_no_more_are_made_than_were_asked_for(tmp_path):
    with new(tmp_path, [kernel(0.5, extra=f"X = {at}") for at in range(9)], Lanes(4, 0.02)) as session:
        summary = await session.run(experiments=3)

        assert summary.tally.total == 3
        assert len(session.experiments) == 4
        assert (await session.step()).number == 4


async def test_a_stop_lets_those_under_way_finish(tmp_path):
    judge = Lanes(2, seconds=0.3)
    with new(tmp_path, [kernel(0.5, extra=f"X = {at}") for at in range(50)], judge) as session:
        await session.step()
        run = asyncio.create_task(session.run())
        while judge.at_once < 2:
            await asyncio.sleep(0.01)
        session.stop()
        summary = await asyncio.wait_for(run, 10)

        assert summary.cause == "asked"
        assert 2 <= summary.tally.total <= 4
        assert {one.decision for one in session.experiments[1:]} == {"revert"}
        assert judge.at_once == 0


async def test_an_error_of_the_judging_leaves_every_other_experiment_to_be_judged_again(tmp_path):
    class Breaks(Lanes):
        def evaluate(self, source, **options):
            if "X = 1" in source and not self.closed.is_set():
                raise RunnerLost("gone")
            return super().evaluate(source, **options)

    sources = [kernel(0.5, extra=f"X = {at}") for at in range(4)]
    with new(tmp_path, sources, Breaks(2, 0.05)) as session:
        with pytest.raises(RunnerLost, match="gone"):
            await session.run(experiments=4)
        path = session.path
    with Session.open(path, agent=ScriptedAgent(sources), evaluator=Lanes(2)) as session:
        await session.run()

        assert [row.experiment for row in rows(session)] == [0, 1, 2, 3, 4]


async def test_with_a_person_who_decides_one_is_judged_at_a_time(tmp_path):
    judge = Lanes(3, seconds=0.05)
    with new(tmp_path, [kernel(1.5), kernel(2.0)], judge, approval="approve") as session:
        await session.step()
        await session.step()

        assert session.waiting.number == 1
        assert len(judge.judged) == 2


CHECKPOINTS = ["referenced", "judging", "rebase-committed", "rebase-journalled", "judgement-journalled", "row-written"]


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_a_kill_with_several_under_way_loses_and_doubles_nothing(tmp_path, checkpoint):
    sources = [SLOW_FIRST, kernel(1.1), kernel(1.5), kernel(9.0, wrong=True)]
    new(tmp_path, sources, Lanes(3)).close()
    child = os.fork()
    if child == 0:
        left = [1 if checkpoint.startswith("rebase") else 3]

        def kill(reached: str) -> None:
            left[0] -= reached == checkpoint
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        agent = ScriptedAgent(sources)
        session = Session.open(tmp_path / "run", agent=agent, evaluator=Lanes(3), checkpoint=kill)
        asyncio.run(session.run())
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it was not killed"

    with Session.open(tmp_path / "run", agent=ScriptedAgent(sources), evaluator=Lanes(3)) as session:
        asyncio.run(session.run())

        assert [row.experiment for row in rows(session)] == [0, 1, 2, 3, 4]
        assert [one.decision for one in session.experiments] == ["baseline", "keep", "revert", "keep", "revert"]
        assert on_branch(session) == ["3", "1", "0"]
        assert Journal(session.path / ".autokernel/journal.jsonl").state.attempts == {}


def test_closing_calls_off_all_that_is_under_way(tmp_path):
    judge = Lanes(2, seconds=30)

    async def drive(session):
        judge.seconds = 0
        await session.step()
        judge.seconds = 30
        run = asyncio.create_task(session.run())
        while judge.at_once < 2:
            await asyncio.sleep(0.01)
        run.cancel()

    with new(tmp_path, [kernel(0.5), kernel(0.6)], judge) as session:
        asyncio.run(drive(session))
    wait_for(lambda: judge.at_once == 0)

    journal = (session.path / ".autokernel/journal.jsonl").read_text()
    assert journal.count('"kind": "cancelled"') == 2


async def test_the_search_takes_a_kernel_under_way_neither_for_failed_nor_for_untried(tmp_path):
    start = kernel(1.0, extra="BLOCK = 64\nLANES = 1\nUSED = BLOCK + LANES")
    contexts = []

    class Watched(SearchAgent):
        async def propose(self, context):
            contexts.append(context)
            return await super().propose(context)

    judge = Lanes(3, seconds=0.5)
    with new(tmp_path, [], judge, start=start, agent=Watched()) as session:
        await session.run(experiments=6)

        under_way = [sum(not one.correctness for one in context.experiments) for context in contexts]
        assert max(under_way) >= 2
        blobs = [one.blob for one in session.experiments]
        assert len(blobs) == len(set(blobs)) == 7
