"""The zygote and its runners: what is lost is replaced, and nothing outlives the judge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autokernel.errors import RunnerLost
from autokernel.evaluator import Evaluator
from autokernel.runner import sandbox
from autokernel.runner.client import Limits, RunnerDied, Zygote
from autokernel.verdict import Stage
from tests.evaluating import brief_evaluator
from tests.planting import right, wrapped

pytest.importorskip("triton")

GOOD = right("rmsnorm", "triton")
SMOKE = [Stage.SMOKE]
SLOW = wrapped("rmsnorm", "import time\ntime.sleep(1.5)\nreturn right(*inputs, **options)", backend="triton")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with brief_evaluator("rmsnorm") as evaluator:
        evaluator.prestart()
        yield evaluator


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until a condition holds; return whether it did."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_zygote_that_was_killed_between_experiments_is_replaced(evaluator):
    assert evaluator.verify(GOOD, stages=SMOKE).accepted
    old = evaluator._zygote._process.pid
    os.kill(old, signal.SIGKILL)
    assert until(lambda: not runs(old))

    verdict = evaluator.verify(GOOD, stages=SMOKE)

    assert verdict.accepted, verdict.reason
    assert evaluator._zygote._process.pid != old


def test_a_runner_that_died_while_it_waited_is_replaced(evaluator):
    evaluator.prestart()
    for runner in evaluator._spares:
        runner.wait_ready()
        os.kill(runner.pid, signal.SIGKILL)
        assert until(lambda pid=runner.pid: not runs(pid))

    verdict = evaluator.verify(GOOD, stages=SMOKE)

    assert verdict.accepted, verdict.reason


def test_a_zygote_that_is_killed_during_a_judgement_is_not_blamed_on_the_candidate(evaluator):
    evaluator.prestart()
    evaluator._spares[0].wait_ready()
    victim = evaluator._zygote._process.pid
    killer = threading.Timer(0.7, os.kill, (victim, signal.SIGKILL))
    killer.start()

    verdict = evaluator.verify(SLOW, stages=SMOKE)
    killer.join()

    assert verdict.accepted, verdict.reason
    assert evaluator._zygote._process.pid != victim


def test_a_runner_that_is_killed_from_outside_gets_the_verdict_of_a_crash(evaluator):
    evaluator.prestart()
    runner = evaluator._spares[0]
    runner.wait_ready()
    killer = threading.Timer(0.7, os.kill, (runner.pid, signal.SIGKILL))  # as the system does when memory runs out
    killer.start()

    verdict = evaluator.verify(SLOW, stages=SMOKE)
    killer.join()

    assert verdict.correctness == "CRASH"
    assert "ended by SIGKILL" in verdict.reason


def test_an_evaluator_outlives_the_thread_that_made_it():
    made: list[Evaluator] = []

    def make() -> None:
        made.append(brief_evaluator("rmsnorm"))
        made[0].verify(GOOD, stages=SMOKE)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    with made[0] as evaluator:
        zygote = evaluator._zygote._process.pid
        assert evaluator.verify(GOOD, stages=SMOKE).accepted
        assert evaluator._zygote._process.pid == zygote


def test_a_closed_evaluator_leaves_no_process_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with brief_evaluator("rmsnorm") as evaluator:
        evaluator.verify(GOOD, stages=SMOKE)
        evaluator.prestart()
        pids = [evaluator._zygote._process.pid, *(runner.pid for runner in evaluator._spares)]
        assert all(map(runs, pids))

    assert until(lambda: not any(map(runs, pids)))
    assert [file.name for file in tmp_path.iterdir()] == []


JUDGE = """
import sys, time, tempfile
tempfile.tempdir = sys.argv[1]
from tests.evaluating import brief_evaluator
from tests.planting import right, wrapped
evaluator = brief_evaluator("rmsnorm")
evaluator.prestart()
evaluator._spares[0].wait_ready()
print(evaluator._zygote._process.pid, *(runner.pid for runner in evaluator._spares), flush=True)
evaluator.verify(wrapped("rmsnorm", "while True: pass", backend="triton"))
"""


@pytest.mark.parametrize("level", sandbox.LEVELS[sandbox.LEVELS.index(sandbox.level()) :])
def test_nothing_outlives_a_judge_that_is_killed(tmp_path, level):
    script = JUDGE.replace('brief_evaluator("rmsnorm")', f'brief_evaluator("rmsnorm", isolation="{level}")')
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as judge:
        assert judge.stdout is not None
        pids = [int(pid) for pid in judge.stdout.readline().split()]
        assert len(pids) >= 2
        time.sleep(0.3)  # until the candidate runs
        judge.kill()

    assert until(lambda: not any(map(runs, pids)))
    assert until(lambda: not list(tmp_path.glob("autokernel-*")))


def test_a_request_after_the_deadline_is_refused_at_once_with_the_same_reason():
    with Zygote("cpu") as zygote, zygote.spawn(Limits()) as runner:
        request = {"op": "load", "role": "candidate", "source": "while True: pass", "inputs": 1, "options": []}
        begin = time.monotonic()
        with pytest.raises(RunnerDied, match=r"no end after 1 s while importing it; killed") as first:
            runner.ask(request, seconds=1.0, doing="importing it")
        assert time.monotonic() - begin < 10
        assert first.value.timed_out

        with pytest.raises(RunnerDied, match="no end after 1 s"):
            runner.ask({"op": "inspect"}, seconds=1.0, doing="looking")


def test_a_runner_answers_a_request_that_makes_no_sense_instead_of_dying():
    with Zygote("cpu") as zygote, zygote.spawn(Limits()) as runner:
        for request in ({"op": "no such thing"}, {"op": "call"}, {"op": "load"}):
            answer = runner.ask(request, seconds=10, doing="nonsense")
            assert not answer["ok"]
            assert answer["error"]


def test_a_zygote_that_cannot_start_says_what_it_printed(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with Zygote("cpu") as zygote, pytest.raises(RunnerLost, match="the runner's zygote did not start"):
        zygote.spawn(Limits())
