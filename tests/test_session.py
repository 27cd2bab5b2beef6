from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from autokernel import results
from autokernel.agents import Exhausted
from autokernel.errors import DeviceUnavailable, InvalidKernel, RunBusy, RunnerLost, UnknownOperation, UsageError
from autokernel.policy import PolicySettings
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel


def new(tmp_path, sources=(), *, start=None, evaluator=None, agent=None, **options):
    return Session.create(
        "rmsnorm", device="cpu", root=tmp_path, start=start or kernel(1.0), agent=agent or ScriptedAgent(list(sources)),
        evaluator=evaluator or ScriptedEvaluator(), **options,
    )  # fmt: skip


def git(session, *arguments):
    return subprocess.run(
        ["git", "-C", str(session.path), *arguments], capture_output=True, text=True, check=True
    ).stdout


def rows(session):
    return results.load(session.path / "results.tsv")


async def test_the_first_step_judges_the_baseline(tmp_path):
    with new(tmp_path) as session:
        baseline = await session.step()

        assert (baseline.number, baseline.decision, baseline.correctness) == (0, "baseline", "PASS")
        assert baseline.speedup.value == pytest.approx(1.0)
        assert [row.decision for row in rows(session)] == ["baseline"]


async def test_a_faster_kernel_advances_the_branch_and_others_do_not(tmp_path):
    wrong = kernel(9.0, wrong=True)
    with new(tmp_path, [kernel(1.5), kernel(1.2), wrong, kernel(1.505), kernel(2.0)]) as session:
        summary = await session.run(experiments=5)

        assert [one.decision for one in session.experiments] == [
            "baseline",
            "keep",
            "revert",
            "revert",
            "revert",
            "keep",
        ]
        assert (summary.tally.kept, summary.tally.reverted, summary.tally.rejected) == (2, 2, 1)
        assert session.best.number == 5
        assert (session.path / "kernel.py").read_text() == kernel(2.0)
        log = git(session, "log", "--format=%s|%(trailers:key=Experiment,valueonly,separator=%x2C)")
        assert [line.split("|")[1] for line in log.splitlines()] == ["5", "1", "0"]
        assert git(session, "show", "refs/autokernel/experiments/3:kernel.py") == wrong
        assert git(session, "status", "--porcelain") == ""
        assert summary.speedup.value == pytest.approx(2.0)


async def test_a_commit_says_what_came_of_it(tmp_path):
    with new(tmp_path, [kernel(1.5)]) as session:
        await session.run(experiments=1)

        trailers = git(session, "show", "-s", "--format=%(trailers)", "refs/autokernel/experiments/1").split("\n")
        assert trailers[:4] == ["Experiment: 1", "Agent: scripted", "Decision: keep", "Correctness: PASS"]
        assert trailers[4].startswith("Speedup: 1.5 (1.497 to 1.503)")


async def test_a_candidate_is_committed_before_it_is_judged_and_never_on_the_branch(tmp_path):
    seen = {}

    class Looks(ScriptedEvaluator):
        def evaluate(self, source, **options):
            seen[source] = (
                git(session, "for-each-ref", "refs/autokernel"),
                git(session, "rev-parse", session.target.branch),
            )
            return super().evaluate(source, **options)

    with new(tmp_path, [kernel(1.5)], evaluator=Looks()) as session:
        await session.step()
        before = git(session, "rev-parse", session.target.branch)
        await session.step()

    references, branch = seen[kernel(1.5)]
    assert "refs/autokernel/experiments/1" in references
    assert branch == before


async def test_the_row_holds_what_the_contract_says(tmp_path):
    with new(tmp_path, [kernel(1.5)], name="demo") as session:
        await session.run(experiments=1)
        row = rows(session)[1]

    assert (row.tag, row.kernel_type, row.backend, row.dtype) == ("demo", "rmsnorm", "cpp", "float32")
    assert (row.speedup_vs_best, row.ci_low, row.ci_high) == pytest.approx((1.5, 1.497, 1.503))
    assert (row.agent, row.tokens, row.description) == ("scripted", 10, "script line 1")
    assert row.latency_us == pytest.approx(66.6667)


async def test_the_record_holds_stages_samples_and_the_exchange(tmp_path):
    with new(tmp_path, [kernel(1.5)]) as session:
        await session.run(experiments=1)

    record = RunFolder(session.path).record(1)
    assert record["verdict"]["stages"][0]["name"] == "smoke"
    assert record["measurement"]["cases"][0]["contestants"]["candidate"]["samples_us"]
    assert (record["trace"], record["decision"]) == ({"line": 0}, "keep")


async def test_a_starting_kernel_that_is_wrong_gives_way_to_the_first_that_is_right(tmp_path):
    with new(tmp_path, [kernel(3.0, wrong=True), kernel(0.5)], start=kernel(1.0, wrong=True)) as session:
        await session.run(experiments=2)

        assert [one.decision for one in session.experiments] == ["baseline", "revert", "keep"]
        assert "fails" in session.status.notes[-1] or "failed" in session.status.notes[-1]


async def test_approve_waits_and_nothing_moves_until_a_person_decides(tmp_path):
    with new(tmp_path, [kernel(1.5), kernel(1.6)], approval="approve") as session:
        await session.step()
        experiment = await session.step()
        branch = git(session, "rev-parse", session.target.branch)

        assert (experiment.state.value, experiment.advice, len(rows(session))) == ("waiting", "keep", 1)
        with pytest.raises(UsageError, match="experiment 1 waits for a decision"):
            await session.step()
        assert git(session, "rev-parse", session.target.branch) == branch
        assert session.keep(1).decided_by == "person"
        assert (session.path / "kernel.py").read_text() == kernel(1.5)
        assert rows(session)[1].decision == "keep"


async def test_a_waiting_decision_survives_a_restart(tmp_path):
    session = new(tmp_path, [kernel(1.5)], approval="approve")
    await session.step()
    await session.step()
    session.close()

    folder = RunFolder(session.path)
    assert folder.pending.number == 1
    folder.send("revert", experiment=1)
    evaluator = ScriptedEvaluator()
    with Session.open(session.path, agent=ScriptedAgent([kernel(1.5)]), evaluator=evaluator) as session:
        await session.run(experiments=1)
        assert [one.decision for one in session.experiments] == ["baseline", "revert"]
        assert evaluator.judged == []


async def test_a_candidate_that_failed_verification_cannot_be_kept(tmp_path):
    with new(tmp_path, [kernel(9.0, wrong=True)], approval="approve") as session:
        await session.run(experiments=1)

        with pytest.raises(UsageError, match="failed verification.*cannot be kept"):
            session.keep(1)
        refusal = [event for event in session.folder.events() if event["kind"] == "refused"][-1]
        assert (refusal["command"], refusal["experiment"]) == ("keep", 1)
        assert session.best.number == 0


@pytest.mark.parametrize(("number", "reason"), [(7, "no experiment 7"), (0, "decided already")])
async def test_a_decision_about_a_wrong_number_is_refused_with_an_event(tmp_path, number, reason):
    with new(tmp_path, [kernel(1.5)], approval="approve") as session:
        await session.step()
        await session.step()
        session.folder.send("keep", experiment=number)
        with pytest.raises(UsageError, match="waits"):
            await session.step()

        refusals = [event["refused"] for event in session.folder.events() if event["kind"] == "refused"]
        assert len(refusals) == 1
        assert reason in refusals[0]
        assert session.waiting.number == 1


async def test_an_edit_takes_the_place_of_the_waiting_experiment_and_is_judged(tmp_path):
    with new(tmp_path, [kernel(1.5)], approval="approve") as session:
        await session.step()
        await session.step()
        session.edit(kernel(1.7), "better still")
        edited = await session.step()

        assert (edited.number, edited.agent, edited.hypothesis) == (2, "person", "better still")
        assert session.experiments[1].decision == "revert"
        assert "see experiment 2" in session.experiments[1].reason
        session.keep(2)
        assert (session.path / "kernel.py").read_text() == kernel(1.7)


async def test_comments_reach_the_agent_once(tmp_path):
    agent = ScriptedAgent([kernel(1.5), kernel(1.6)])
    with new(tmp_path, agent=agent) as session:
        await session.step()
        session.folder.send("comment", text="try more threads")
        await session.run(experiments=2)

    assert [context.comments for context in agent.contexts] == [("try more threads",), ()]


async def test_pause_holds_a_run_until_resume_and_stop_ends_it(tmp_path):
    sources = [kernel(1 + index / 10) for index in range(1, 9)]
    with new(tmp_path, sources, evaluator=ScriptedEvaluator(seconds=0.05)) as session:
        await session.step()
        session.pause()
        run = asyncio.create_task(session.run(experiments=8))
        await asyncio.sleep(0.3)
        assert session.status.state == "paused"
        assert len(session.experiments) == 1
        session.folder.send("resume")
        while len(session.experiments) < 3:
            await asyncio.sleep(0.01)
        session.folder.send("stop")
        summary = await run

        assert summary.stopped == "a person said stop"
        assert 1 <= summary.tally.total < 8
        assert list((session.path / ".autokernel/commands").glob("*.json")) == []


async def test_a_stop_calls_a_thinking_agent_off(tmp_path):
    with new(tmp_path, agent=ScriptedAgent([kernel(2.0)], seconds=60)) as session:
        await session.step()
        run = asyncio.create_task(session.run())
        await asyncio.sleep(0.2)
        session.stop()

        assert (await asyncio.wait_for(run, 5)).stopped == "a person said stop"


async def test_two_drivers_of_one_run_are_refused_and_a_watcher_is_not(tmp_path):
    with new(tmp_path) as session:
        with pytest.raises(RunBusy, match="process"):
            Session.open(session.path)
        with pytest.raises(RunBusy):
            Session.spawn_detached(session.path)
        assert RunFolder(session.path).status.driver["pid"] > 0
    assert RunFolder(session.path).status.driver is None


async def test_submit_judges_a_kernel_from_outside(tmp_path):
    with new(tmp_path) as session:
        experiment = await session.submit(kernel(1.4), "unrolled", agent="codex")

        assert (experiment.number, experiment.decision, experiment.agent) == (1, "keep", "codex")
        assert [row.experiment for row in rows(session)] == [0, 1]
        with pytest.raises(UsageError, match="empty"):
            await session.submit("  ", "nothing")
        with pytest.raises(UsageError, match=r"judged already, as experiment 1 \(keep\)"):
            await session.submit(kernel(1.4), "once more", agent="codex")
        assert len(session.experiments) == 2


async def test_an_edit_found_in_the_folder_is_committed_aside_and_said_so(tmp_path):
    session = new(tmp_path)
    await session.step()
    session.close()
    (session.path / "kernel.py").write_text("# mine\n")

    with Session.open(session.path, evaluator=ScriptedEvaluator()) as session:
        assert (session.path / "kernel.py").read_text() == kernel(1.0)
        (reference,) = git(session, "for-each-ref", "--format=%(refname)", "refs/autokernel/edits").split()
        assert git(session, "show", f"{reference}:kernel.py") == "# mine\n"
        assert reference in session.status.notes[-1]


async def test_an_edit_found_in_the_folder_is_the_next_candidate_when_asked(tmp_path):
    session = new(tmp_path)
    await session.step()
    session.close()
    (session.path / "kernel.py").write_text(kernel(1.8))

    with Session.open(session.path, evaluator=ScriptedEvaluator(), take_edit=True) as session:
        experiment = await session.step()
        assert (experiment.decision, experiment.agent) == ("keep", "person")


async def test_a_person_as_agent_edits_kernel_py(tmp_path):
    with new(tmp_path, agent="human") as session:
        await session.step()
        (session.path / "kernel.py").write_text(kernel(1.3))
        experiment = await asyncio.wait_for(session.step(), 10)
        assert experiment.decision == "keep"


async def test_a_recorded_run_is_proposed_again(tmp_path):
    with new(tmp_path / "a", [kernel(1.5), kernel(1.2), kernel(1.9)], name="recorded") as recorded:
        await recorded.run(experiments=3)
    with new(tmp_path / "b", agent=f"replay:{recorded.path}") as session:
        summary = await session.run()

    assert [one.decision for one in session.experiments] == ["baseline", "keep", "revert", "keep"]
    assert "all experiments" in summary.stopped


async def test_an_agent_that_repeats_itself_is_told_so_and_then_dropped(tmp_path):
    agent = ScriptedAgent([kernel(1.0)])
    with new(tmp_path, agent=agent) as session:
        await session.step()
        with pytest.raises(Exhausted, match="experiment 0, unchanged"):
            await session.step()
        assert "unchanged" in agent.contexts[1].refused
        assert len(session.experiments) == 1


async def test_a_kernel_for_another_backend_is_rejected_and_the_loop_goes_on(tmp_path):
    evaluator = ScriptedEvaluator()
    other = kernel(2.0).replace('"cpp"', '"cuda"')
    with new(tmp_path, [other, kernel(1.5)], evaluator=evaluator) as session:
        await session.run(experiments=2)
        assert [one.correctness for one in session.experiments] == ["PASS", "FAIL", "PASS"]
        assert "BACKEND" in session.experiments[1].reason
        assert other not in evaluator.judged


async def test_when_the_judging_itself_fails_the_experiment_is_judged_again(tmp_path):
    evaluator = ScriptedEvaluator(error=RunnerLost("no runner"))
    with new(tmp_path, [kernel(1.5)], evaluator=evaluator) as session:
        with pytest.raises(RunnerLost):
            await session.step()
        evaluator.error = None
        assert (await session.step()).decision == "baseline"


async def test_a_cancelled_step_is_taken_up_by_the_next(tmp_path):
    evaluator = ScriptedEvaluator(seconds=0.5)
    with new(tmp_path, [kernel(1.5)], evaluator=evaluator) as session:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.step(), 0.1)
        assert (await session.step()).decision == "baseline"
        assert len(evaluator.judged) == 1


async def test_closing_while_judging_leaves_the_experiment_to_be_judged_again(tmp_path):
    session = new(tmp_path, evaluator=ScriptedEvaluator(seconds=5))
    task = asyncio.create_task(session.step())
    await asyncio.sleep(0.2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    session.close()

    with Session.open(session.path, agent=ScriptedAgent([]), evaluator=ScriptedEvaluator()) as session:
        assert (await session.step()).decision == "baseline"


def test_steps_work_under_separate_event_loops(tmp_path):
    with new(tmp_path, [kernel(1.5)]) as session:
        assert asyncio.run(session.step()).number == 0
        assert asyncio.run(session.step()).number == 1


async def test_a_run_ends_at_a_plateau_a_budget_and_the_roofline(tmp_path):
    slow = [kernel(0.5 + index / 1000) for index in range(20)]
    with new(tmp_path, slow, name="plateau", policy=PolicySettings(plateau=3)) as session:
        assert "brought no gain" in (await session.run()).stopped
    with new(tmp_path, slow, name="budget", policy=PolicySettings(experiments=2)) as session:
        assert "2 experiments" in (await session.run()).stopped
    with new(tmp_path, [kernel(9.8), *slow], name="roof") as session:
        assert "roofline" in (await session.run()).stopped
        assert len(session.experiments) == 2


async def test_events_are_numbered_without_gaps(tmp_path):
    with new(tmp_path, [kernel(1.5)]) as session:
        await session.run(experiments=1)
        events = session.folder.events()

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["experiment"] for event in events if event["kind"] == "decided"] == [0, 1]
    assert session.folder.events(after=events[-2]["seq"]) == [events[-1]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"operation": "rmsnrom"}, UnknownOperation, "unknown operation 'rmsnrom'"),
        ({"backend": "opencl"}, UsageError, "unknown backend 'opencl'"),
        ({"backend": "cuda"}, UsageError, "does not run on cpu"),
        ({"device": "tpu"}, UsageError, "unknown device 'tpu'"),
        ({"device": "cuda:99"}, DeviceUnavailable, "PyTorch sees"),
        ({"dtype": "float64"}, UsageError, "not defined for 'float64'"),
        ({"shapes": [{"M": 4}]}, UsageError, "does not fit rmsnorm, whose sizes are M, N"),
        ({"shapes": [{"M": 4, "N": 0}]}, UsageError, "N=0"),
        ({"shapes": []}, UsageError, "empty"),
        ({"name": "../x"}, UsageError, "cannot name a run"),
        ({"name": "taken"}, UsageError, "exists and is not empty"),
        ({"agent": "oracle"}, UsageError, "unknown agent 'oracle'"),
        ({"approval": "maybe"}, UsageError, "approval is 'maybe'"),
        (
            {"start": "def kernel_fn(:\n    pass\n"},
            InvalidKernel,
            r"the starting kernel is no Python.*\(the starting kernel, line 1\)",
        ),
        ({"start": "X = 1\nY = 2\n"}, InvalidKernel, "defines no kernel_fn"),
        ({"start": 'KERNEL_TYPE = "softmax"\ndef kernel_fn(x): ...\n'}, InvalidKernel, "KERNEL_TYPE = 'softmax'"),
        ({"start": "nowhere.py"}, InvalidKernel, "cannot read"),
    ],
)
def test_create_refuses_what_does_not_fit_and_leaves_nothing_behind(tmp_path, options, error, message):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("x")

    with pytest.raises(error, match=message):
        Session.create(**{"operation": "rmsnorm", "device": "cpu", "root": tmp_path, **options})
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_changed_subject_in_target_toml_is_refused_and_changed_settings_are_taken(tmp_path):
    session = new(tmp_path)
    session.close()
    target = session.path / "target.toml"
    text = target.read_text()

    target.write_text(
        text.replace('approval = "auto"', 'approval = "approve"').replace("threshold = 0.01", "threshold = 0.5")
    )
    with Session.open(session.path, agent=ScriptedAgent([])) as session:
        assert session.target.approval == "approve"
        assert session.target.policy.threshold == 0.5
    target.write_text(text.replace('dtype = "float32"', 'dtype = "float16"'))
    with pytest.raises(Exception, match="now has another dtype"):
        Session.open(session.path)


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path):
    with pytest.raises(UsageError, match="no run"):
        Session.open(tmp_path)
    with pytest.raises(UsageError, match="no run"):
        RunFolder(tmp_path / "nowhere")


def test_looking_at_a_run_imports_neither_torch_nor_gitpython(tmp_path):
    session = new(tmp_path)
    session.close()
    script = (
        "import sys, autokernel; run = autokernel.RunFolder(sys.argv[1]); run.status, run.experiments, run.events();"
        "run.record(0); assert not {'torch', 'git'} & set(sys.modules), 'imported'"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", script, str(session.path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_every_line_of_the_journal_is_whole_json(tmp_path):
    with new(tmp_path, [kernel(1.5)]) as session:
        await session.run(experiments=1)
    lines = (session.path / ".autokernel/journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines].count("decided") == 2


@pytest.mark.thorough
async def test_three_hundred_experiments_take_no_more_memory_than_twenty(tmp_path):
    def resident_mb():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 1e6

    sources = [kernel(0.5 + index / 1000, extra="#" * 5000) for index in range(300)]
    with new(tmp_path, sources, policy=PolicySettings(plateau=None)) as session:
        await session.run(experiments=20)
        before = resident_mb()
        await session.run(experiments=280)
        assert len(session.experiments) == 301
        assert resident_mb() - before < 50
