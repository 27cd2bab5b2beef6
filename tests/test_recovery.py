"""A run is killed at every step of an experiment, opened again, and must end as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from autokernel import results
from autokernel.errors import RunDamaged, RunUnwritable
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel

ROOT = Path(__file__).parent.parent
SOURCES = [kernel(1.5), kernel(1.2), kernel(9.0, wrong=True), kernel(2.0)]
DECISIONS = ["baseline", "keep", "revert", "revert", "keep"]
CHECKPOINTS = [
    "committed", "recorded", "journalled", "referenced", "judging", "judgement-recorded", "judgement-journalled",
    "decision-committed", "decision-recorded", "decision-journalled", "branch-moved", "row-written",
]  # fmt: skip


def drive(path: Path, checkpoint=lambda name: None, evaluator=None) -> None:
    agent = ScriptedAgent(SOURCES)
    with Session.open(path, agent=agent, evaluator=evaluator or ScriptedEvaluator(), checkpoint=checkpoint) as session:
        asyncio.run(session.run())


def killed(action) -> bool:
    """Run ``action`` in a forked process; True if a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def kill_at(name: str, occurrence: int):
    left = [occurrence]

    def checkpoint(reached: str) -> None:
        left[0] -= reached == name
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return checkpoint


def new_run(tmp_path: Path) -> Path:
    session = Session.create("rmsnorm", device="cpu", root=tmp_path, name="run", start=kernel(1.0))
    session.close()
    return session.path


def git(path: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(path), *arguments], capture_output=True, text=True, check=True).stdout


def check_whole(path: Path) -> None:
    """What must hold at every moment, also right after a kill."""
    shown = git(path, "show", "autokernel/run:kernel.py")
    assert shown in (kernel(1.0), kernel(1.5), kernel(2.0)), "an unverified candidate is on the branch"
    assert results.read(path / "results.tsv").problems == ()


def check_finished(path: Path) -> None:
    """What the run comes to in the end, killed or not."""
    run = RunFolder(path)
    assert [one.decision for one in run.experiments] == DECISIONS
    rows = results.load(path / "results.tsv")
    assert [(row.experiment, row.decision) for row in rows] == list(enumerate(DECISIONS))
    assert [git(path, "show", f"refs/autokernel/experiments/{n}:kernel.py") for n in range(1, 5)] == SOURCES
    assert git(path, "show", "autokernel/run:kernel.py") == (path / "kernel.py").read_text() == kernel(2.0)
    subjects = git(path, "log", "--format=%(trailers:key=Experiment,valueonly,separator=%x2C)", "autokernel/run")
    assert subjects.split() == ["4", "1", "0"]
    for one in run.experiments:
        assert git(path, "rev-parse", f"refs/autokernel/experiments/{one.number}").strip() == one.commit
        assert run.record(one.number)["decision"] == one.decision
    announced = [event["experiment"] for event in run.events() if event["kind"] == "decided"]
    assert announced == [0, 1, 2, 3, 4]
    assert git(path, "status", "--porcelain") == ""
    git(path, "fsck", "--strict")


@pytest.mark.parametrize("occurrence", [2, 3])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_run_killed_at_any_step_continues_and_loses_nothing(tmp_path, name, occurrence):
    path = new_run(tmp_path)

    assert killed(lambda: drive(path, kill_at(name, occurrence)))
    check_whole(path)
    drive(path)

    check_finished(path)


def test_a_run_killed_at_random_moments_again_and_again_continues(tmp_path):
    path = new_run(tmp_path)
    moments = random.Random(3)
    script = textwrap.dedent(
        """
        import sys; from pathlib import Path
        from tests.scripted import ScriptedEvaluator
        from tests.test_recovery import drive
        print("driving", flush=True)
        drive(Path(sys.argv[1]), evaluator=ScriptedEvaluator(seconds=0.02))
        """
    )
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.uniform(0.0, 0.6))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        check_whole(path)
    drive(path)

    check_finished(path)


def test_a_keep_by_command_is_carried_out_once_when_a_kill_comes_between(tmp_path):
    session = Session.create(
        "rmsnorm", device="cpu", root=tmp_path, name="run", start=kernel(1.0), approval="approve",
        agent=ScriptedAgent(SOURCES), evaluator=ScriptedEvaluator(),
    )  # fmt: skip
    asyncio.run(session.step())
    asyncio.run(session.step())
    session.close()
    RunFolder(session.path).send("keep", experiment=1)

    def decide():
        opened = Session.open(session.path, agent=ScriptedAgent([]), checkpoint=kill_at("decision-journalled", 1))
        asyncio.run(opened.run())

    assert killed(decide)
    assert RunFolder(session.path).waiting_commands == []
    with Session.open(session.path, agent=ScriptedAgent([])) as opened:
        asyncio.run(opened.run())
        assert [one.decision for one in opened.experiments] == ["baseline", "keep"]
        assert [event["kind"] for event in opened.folder.events()].count("refused") == 0
    assert [row.decision for row in results.load(session.path / "results.tsv")] == ["baseline", "keep"]
    assert (session.path / "kernel.py").read_text() == kernel(1.5)


def test_an_edit_of_a_waiting_experiment_survives_a_kill(tmp_path):
    session = Session.create(
        "rmsnorm", device="cpu", root=tmp_path, name="run", start=kernel(1.0), approval="approve",
        agent=ScriptedAgent(SOURCES), evaluator=ScriptedEvaluator(),
    )  # fmt: skip
    asyncio.run(session.step())
    asyncio.run(session.step())
    session.close()
    RunFolder(session.path).send("edit", source=kernel(1.7))

    def take_edit():
        opened = Session.open(session.path, agent=ScriptedAgent([]), checkpoint=kill_at("journalled", 1))
        asyncio.run(opened.run())

    assert killed(take_edit)
    with Session.open(session.path, agent=ScriptedAgent([]), evaluator=ScriptedEvaluator()) as opened:
        assert asyncio.run(opened.step()).number == 2
        assert [one.decision for one in opened.experiments] == ["baseline", "revert", ""]
        assert opened.folder.source(2) == kernel(1.7)
        assert opened.waiting.number == 2


def test_a_candidate_that_kills_the_driver_three_times_is_given_up(tmp_path):
    path = new_run(tmp_path)

    class Kills(ScriptedEvaluator):
        def evaluate(self, source, **options):
            if source == kernel(1.5):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().evaluate(source, **options)

    for _ in range(3):
        assert killed(lambda: drive(path, evaluator=Kills()))
    drive(path, evaluator=Kills())

    first = RunFolder(path).experiment(1)
    assert (first.correctness, first.decision) == ("CRASH", "revert")
    assert "3 times" in first.reason


@pytest.mark.parametrize("file", ["journal.jsonl", "events.jsonl"])
def test_a_torn_last_line_is_cut_off(tmp_path, file):
    path = new_run(tmp_path)
    assert killed(lambda: drive(path, kill_at("judging", 2)))
    with open(path / ".autokernel" / file, "ab") as torn:
        torn.write(b'{"kind": "decided", "number": 1, "exp')

    drive(path)
    check_finished(path)


def test_a_torn_row_is_moved_aside_and_written_again(tmp_path):
    path = new_run(tmp_path)
    assert killed(lambda: drive(path, kill_at("branch-moved", 3)))
    with open(path / "results.tsv", "ab") as file:
        file.write(b"2\trun\trmsnorm\t0.1\t83.")

    drive(path)
    check_finished(path)
    assert [kept.read_bytes()[:5] for kept in (path / ".autokernel/aside").iterdir()] == [b"2\trun"]


def test_a_deleted_results_file_is_written_again(tmp_path):
    path = new_run(tmp_path)
    drive(path)
    (path / "results.tsv").unlink()

    with Session.open(path):
        pass
    check_finished(path)


def test_commits_made_by_hand_on_the_branch_are_kept_aside(tmp_path):
    path = new_run(tmp_path)
    drive(path)
    (path / "kernel.py").write_text("# by hand\n")
    git(path, "commit", "-qam", "by hand")
    made = git(path, "rev-parse", "HEAD").strip()
    git(path, "checkout", "-q", "-b", "elsewhere")

    with Session.open(path):
        pass
    check_finished(path)
    assert git(path, "symbolic-ref", "HEAD").strip() == "refs/heads/autokernel/run"
    assert made in git(path, "for-each-ref", "refs/autokernel/edits")


def test_a_run_without_its_journal_or_its_repository_says_what_to_do(tmp_path):
    path = new_run(tmp_path)
    (path / ".git").rename(tmp_path / "git")
    with pytest.raises(RunDamaged, match="no git repository"):
        Session.open(path)
    (tmp_path / "git").rename(path / ".git")
    (path / ".autokernel/journal.jsonl").unlink()
    with pytest.raises(RunDamaged, match=r"journal\.jsonl is missing"):
        Session.open(path)


def test_a_full_disk_stops_the_run_with_one_message_and_it_continues_later(tmp_path):
    path = new_run(tmp_path)
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from tests.test_recovery import drive
        from autokernel.errors import RunUnwritable
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        journal = Path(sys.argv[1], ".autokernel/journal.jsonl")

        def fill(name):  # from here on no file may grow beyond the journal's size: the next line does not fit
            if name == "judgement-recorded" and journal.stat().st_size > 2500:
                size = journal.stat().st_size + 10
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        try:
            drive(Path(sys.argv[1]), fill)
        except RunUnwritable as error:
            print(error)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True)

    assert "free some space" in done.stdout, done.stderr
    check_whole(path)
    drive(path)
    check_finished(path)


def test_a_read_only_folder_gives_one_clear_message(tmp_path):
    path = new_run(tmp_path)

    def as_nobody():
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with pytest.raises(RunUnwritable, match="make it writable"):
            Session.create("rmsnorm", device="cpu", root=tmp_path / "new", start=kernel(1.0))
        with pytest.raises(RunUnwritable, match="make it writable"):
            Session.open(path)
        os.kill(os.getpid(), signal.SIGKILL)

    for folder in (*path.rglob("*"), path, tmp_path):
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    for folder in tmp_path.parents:  # so that nobody can reach it
        if folder != Path("/") and folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    try:
        assert killed(as_nobody)
    finally:
        for folder in (tmp_path, path, *path.rglob("*")):
            folder.chmod(0o755 if folder.is_dir() else 0o644)
