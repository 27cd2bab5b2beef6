"""The workbench: its parts agree, and its buttons drive real runs, here and in a process of their own."""

from __future__ import annotations

import asyncio
import time

import pytest
from autokernel_widgets import Workbench
from autokernel_widgets.controls import Controls
from autokernel_widgets.driving import set_approval
from autokernel_widgets.markup import text_of

from autokernel.errors import RunDamaged, UsageError
from autokernel.events import EventLog
from autokernel.files import RunLock
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from autokernel.target import Target
from tests.recorded_run import record_run
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel
from tests.widgets.clicking import find, press, say
from tests.widgets.rich_run import add, rich_run


@pytest.fixture
def run(tmp_path):
    return record_run(tmp_path / "run")


@pytest.fixture
def scripted(tmp_path):
    """A session of a scripted agent whose baseline is not judged yet."""
    options = {"agent": ScriptedAgent([kernel(1.5), kernel(2.0), kernel(2.5)]), "evaluator": ScriptedEvaluator()}
    with Session.create("rmsnorm", root=tmp_path, name="s", device="cpu", start=kernel(1.0), **options) as session:
        yield session


async def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.05)


def disabled(controls):
    names = ("start", "pause", "step", "stop")
    return [name for name in names if any("disabled" in one[1] for one in find(controls, data_action=name))]


def test_an_experiment_that_is_chosen_anywhere_is_chosen_everywhere(run):
    bench = Workbench(run)
    for part, number in ((bench.chart, 1), (bench.history, 2), (bench.roofline, 0), (bench.card, 3), (bench, 1)):
        part.selected = number
        assert {one.selected for one in bench.parts} == {bench.selected} == {number}

    assert "LANES 1 -> 8" in text_of(bench.card.tree)
    assert "experiment 1" in text_of(bench.trace.tree)


def test_it_goes_to_a_new_experiment_unless_a_person_looks_at_an_older_one(run):
    bench = Workbench(run)
    number = add(run)
    bench.refresh()
    assert bench.selected == number

    bench.history.selected = 1
    add(run)
    bench.refresh()
    assert bench.selected == 1


def test_an_idle_run_can_be_started_and_not_paused(run):
    assert disabled(Controls(run)) == ["pause", "stop"]


def test_a_run_that_another_process_drives_can_be_paused_and_not_started(run):
    lock = RunLock(run / ".autokernel" / "lock")
    try:
        controls = Controls(run)
        assert disabled(controls) == ["start", "step"]
        assert "driven by" in text_of(controls.tree)
        accepted, said = say(controls, "start", experiments="3", place="notebook")
        assert not accepted and "drives the run already" in said
        for action in ("pause", "stop"):
            assert press(controls, action)[0]
    finally:
        lock.release()

    assert [command.kind for command in RunFolder(run).waiting_commands] == ["pause", "stop"]


def test_two_windows_show_the_same(run):
    one, other = Controls(run), Controls(run)
    press(one, "approval", "true")
    other.refresh()

    assert "checked" in find(other, data_action="approval")[0][1]
    assert "you decide" in text_of(other.tree)


def test_a_waiting_experiment_is_announced_with_a_way_to_it(tmp_path):
    bench = Workbench(rich_run(tmp_path / "run"))
    bench.history.selected = 1

    assert "Experiment 4 waits for your decision." in text_of(bench.controls.tree)
    press(bench.controls, "show")
    assert bench.card.selected == 4


def test_errors_of_the_run_are_said(run):
    EventLog(run / ".autokernel" / "events.jsonl").write("error", experiment=4, error="RunnerLost: no <b>runner</b>")

    assert "RunnerLost: no <b>runner</b>" in text_of(Controls(run).tree)


@pytest.mark.parametrize("count", ["", "0", "-3", "many", "2.5"])
def test_a_number_of_experiments_that_is_none_is_refused(run, count):
    accepted, said = press(Controls(run), "start", experiments=count, place="notebook")

    assert not accepted and ("no number" in said or "at least one" in said)


def test_a_place_that_is_none_is_refused(run):
    assert press(Controls(run), "start", experiments="1", place="the cloud")[0] is False
    with pytest.raises(UsageError, match="detached or notebook"):
        Controls(run, place="the cloud")


def test_outside_an_event_loop_a_run_can_only_be_started_detached(run):
    accepted, said = press(Controls(run), "start", experiments="1", place="notebook")

    assert not accepted and "start it detached" in said
    assert RunFolder(run).status.driver is None


def test_who_decides_is_written_without_touching_the_rest(run):
    text = (run / "target.toml").read_text().replace("# What", "# mine\n# What")
    (run / "target.toml").write_text(text)
    set_approval(run, "approve")

    assert Target.load(run).approval == "approve"
    assert (run / "target.toml").read_text() == text.replace('approval = "auto"', 'approval = "approve"')


def test_who_decides_is_added_where_the_file_does_not_say(run):
    lines = (run / "target.toml").read_text().splitlines(keepends=True)
    (run / "target.toml").write_text("".join(line for line in lines if not line.startswith("approval")))
    set_approval(run, "approve")

    assert Target.load(run).approval == "approve"


def test_a_target_that_cannot_be_read_is_left_alone(run):
    (run / "target.toml").write_text("approval = [")
    with pytest.raises(RunDamaged):
        set_approval(run, "approve")

    assert (run / "target.toml").read_text() == "approval = ["


async def test_a_session_is_driven_in_this_notebook_step_by_step(scripted):
    bench = Workbench(scripted)
    assert disabled(bench.controls) == ["pause", "stop"]

    assert press(bench.controls, "step")[0]
    await until(lambda: not bench.controls._driver.busy)
    bench.refresh()

    assert [one.decision for one in scripted.experiments] == ["baseline", "keep"]
    assert bench.history.rows[-1][1] == "kept" and "1.500×" in text_of(bench.controls.tree)
    assert "it ended: 1 experiments were made" in text_of(bench.controls.tree)
    assert disabled(bench.controls) == ["pause", "stop"]  # and can be started again


async def test_stop_ends_a_run_in_this_notebook_and_a_second_start_is_refused_meanwhile(scripted):
    scripted._engine._agent.seconds = 30.0  # it thinks until the stop
    controls = Controls(scripted)
    press(controls, "start", experiments="3")
    await until(lambda: "thinks" in text_of(controls.tree))

    assert say(controls, "start", experiments="3")[0] is False
    press(controls, "stop")
    await until(lambda: not controls._driver.busy)
    controls.refresh()
    assert text_of(controls.tree).count("it ended: a person said stop") == 1


async def test_an_agent_that_breaks_is_reported_in_the_widget(scripted):
    async def broken(context):
        raise ZeroDivisionError("in the <agent>")

    scripted._engine._agent.propose = broken
    controls = Controls(scripted)
    press(controls, "step")
    await until(lambda: not controls._driver.busy)
    controls.refresh()

    assert "it ended with an error: ZeroDivisionError: in the <agent>" in text_of(controls.tree)


async def test_closing_ends_following_and_leaves_the_run_alone(run):
    bench = Workbench(run)
    tasks = [part._task for part in bench.parts]
    bench.close()
    await asyncio.wait(tasks, timeout=30)

    assert all(task.done() for task in tasks)
    assert RunFolder(run).status.tally.total == 3


async def test_a_detached_start_that_fails_says_why(run, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", str(run))  # no Python starts with that
    controls = Controls(run)
    assert press(controls, "start", experiments="2", place="detached")[0]
    assert disabled(controls) == ["start", "pause", "step", "stop"]

    await until(lambda: "the process ended at once" in text_of(controls.tree))
    assert "driver.log" in text_of(controls.tree)
    assert disabled(controls) == ["pause", "stop"]


@pytest.mark.slow
async def test_a_detached_run_is_started_followed_and_stopped_with_real_kernels(tmp_path):
    shape = [{"M": 64, "N": 256}]
    with Session.create("rmsnorm", backend="cpp", device="cpu", shapes=shape, root=tmp_path, name="real") as session:
        path = session.path
    bench = Workbench(path)
    accepted, said = press(bench.controls, "start", experiments="50", place="detached")
    assert accepted and "a process of its own" in said

    await until(lambda: RunFolder(path).status.driver is not None and bench.history.rows[:1], 120)
    await until(lambda: "stop" not in disabled(bench.controls))
    press(bench.controls, "stop")
    await until(lambda: RunFolder(path).status.driver is None, 120)
    bench.refresh()

    assert disabled(bench.controls) == ["pause", "stop"]
    assert text_of(bench.controls.tree).count("a person said stop") == 1


def test_without_widgets_all_parts_are_shown(run):
    static = Workbench(run)._repr_mimebundle_()[0]["text/html"]

    assert "3 experiments: 1 kept" in static and "<svg" in static and "LANES 1 -&gt; 8" in static


def test_a_folder_that_is_no_run_is_said_once_and_no_button_raises(tmp_path):
    bench = Workbench(tmp_path)

    assert bench._repr_mimebundle_()[0]["text/html"].count("is no run: it has no target.toml") == 1
    assert list(bench.children) == [bench.controls]
    for action in ("start", "step", "pause", "stop"):  # a browser that still shows buttons of before
        accepted, said = say(bench.controls, action, experiments="1", place="notebook")
        assert not accepted and "is no run" in said


def test_a_run_that_appears_later_is_laid_out_then(tmp_path):
    bench = Workbench(tmp_path / "run")
    record_run(tmp_path / "run")
    bench.refresh()

    assert len(bench.children) == 5
