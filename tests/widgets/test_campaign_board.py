"""The board of a campaign: what it says of each target, and its buttons over campaigns here and elsewhere."""

from __future__ import annotations

import asyncio
import time

import pytest
from autokernel_widgets import CampaignBoard, Workbench
from autokernel_widgets.campaign_overview import recovered
from autokernel_widgets.campaign_source import is_campaign
from autokernel_widgets.markup import text_of

from autokernel.campaign import Campaign
from autokernel.campaign_plan import CampaignTarget
from autokernel.errors import RunnerLost, UsageError
from autokernel.files import RunLock
from autokernel.runfolder import RunFolder
from autokernel.scheduler import Standing
from autokernel.target import Target, Timing
from tests.scripted import ScriptedEvaluator
from tests.widgets.clicking import find, nodes, press, say
from tests.widgets.scripted_campaign import scripted_campaign


@pytest.fixture
def campaign(tmp_path):
    return scripted_campaign(tmp_path)


async def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.05)


def made(board):
    return sum(one.experiments for one in board._source.state().standings)


def rows(board):
    """The cells of each target's row."""
    found = [one for one in nodes(board.overview.tree) if one[0] == "tr" and "data-id" in one[1]]
    return {row[1]["data-id"].removeprefix("target "): [text_of(cell) for cell in row[3:]] for row in found}


def said(board):
    return text_of(board.overview.tree)


def disabled(board):
    names = ("start", "pause", "stop")
    return [name for name in names if any("disabled" in one[1] for one in find(board.overview, data_action=name))]


def test_a_new_campaign_says_what_is_next_and_why(campaign):
    board = CampaignBoard(campaign.path)

    assert "campaign over 2 targets of two layers" in said(board)
    assert "Next norm: it offers 22 % of the model's time." in said(board)
    assert "The model 1.000×" in said(board) and "nobody drives it" in said(board)
    assert rows(board)["norm"][:4] == ["○ not begun", "30.0 %", "", "4.00×"]
    assert rows(board)["soft"][3] == ""
    assert disabled(board) == ["pause", "stop"]
    assert board.chosen == "norm"


async def test_after_some_turns_each_target_stands_with_what_it_gained(campaign):
    await campaign.run(experiments=6)
    board = CampaignBoard(campaign.path)

    norm, soft = rows(board)["norm"], rows(board)["soft"]
    assert norm[2:4] == ["2.000× PyTorch", "10.00×"]  # the ceiling is that of the measurement by now
    assert soft[2] == "2.000× PyTorch"
    assert "finished: the agent has nothing more to try" in said(board) or "its turn comes again" in said(board)
    assert "The model 1.333×" in said(board)  # 1 / (1 - 0.3 / 2 - 0.2 / 2)
    assert "25.0 % of its time saved" in said(board)
    assert "it ended: 6 experiments were made" in said(board)
    assert said(board).count("ended its turn: 2 experiments were made") == 3
    assert "56 % of the time above the floor" in norm[4]


def test_the_part_won_back_is_of_the_time_above_the_floor():
    assert recovered(Standing(name="a", share=0.1, speedup=2.0, ceiling=4.0)) == pytest.approx(2 / 3)
    assert recovered(Standing(name="a", share=0.1, speedup=0.5, ceiling=4.0)) == 0.0
    assert recovered(Standing(name="a", share=0.1, speedup=5.0, ceiling=4.0)) == 1.0
    assert recovered(Standing(name="a", share=0.1, speedup=2.0)) is None


async def test_a_click_on_a_target_shows_its_run_and_stays_there(campaign):
    board = CampaignBoard(campaign.path)
    assert press(board.overview, "choose", "soft") == (True, "")
    assert board.chosen == "soft" and board.children[1] is board.page
    first = board.page

    await campaign.run(experiments=4)
    board.refresh()
    assert board.chosen == "soft"
    assert len(first.history.rows) >= 1
    first.history.selected = 0
    assert first.chart.selected == 0

    press(board.overview, "choose", "norm")
    assert board.page is not first and all(part._task is None for part in first.parts)
    press(board.overview, "choose", "soft")
    assert board.page is first  # made once
    assert say(board.overview, "choose", "gone") == (False, "the campaign has no target 'gone'; it has: norm, soft")
    with pytest.raises(UsageError, match="no target 'gone'"):
        board.choose("gone")
    board.close()


async def test_a_campaign_is_started_here_followed_paused_and_stopped(tmp_path):
    board = CampaignBoard(scripted_campaign(tmp_path, seconds=0.2), place="notebook")
    assert press(board.overview, "start", experiments="20")[0]
    await until(lambda: "● running" in said(board) and "Now norm" in said(board))
    assert disabled(board) == ["start"]
    assert "driven by this notebook" in said(board)
    assert not say(board.overview, "start", experiments="3", place="notebook")[0]
    assert board.chosen == "norm"

    press(board.overview, "pause")
    await until(lambda: "‖ paused" in said(board))
    before = made(board)
    await asyncio.sleep(1.0)  # long enough for several experiments
    assert made(board) == before

    press(board.overview, "resume")
    await until(lambda: made(board) > before)
    press(board.overview, "stop")
    await until(lambda: "○ idle" in said(board))
    await until(lambda: "it ended: a person" in said(board))
    assert disabled(board) == ["pause", "stop"]
    board.close()


async def test_a_pause_holds_whichever_target_is_next_and_a_start_takes_it_back(tmp_path):
    campaign = scripted_campaign(tmp_path)
    board = CampaignBoard(campaign, place="notebook", live=False)
    board.overview._driver.pause()
    running = asyncio.create_task(campaign.run(experiments=2))
    await until(lambda: board._source.state().turn is not None)
    await asyncio.sleep(0.5)
    board.refresh()
    assert [run.best for run in campaign.runs.values()] == [None, None]  # not even a baseline is judged
    assert find(board.overview, data_action="resume")
    press(board.overview, "stop")
    await asyncio.wait_for(running, 30)

    board.refresh()
    assert press(board.overview, "start", experiments="2")[0]
    await until(lambda: not board.overview._driver.busy)
    board.refresh()
    assert "it ended: 2 experiments were made" in said(board)


async def test_a_campaign_that_another_process_drives_is_obeyed_not_started(campaign):
    lock = RunLock(campaign.path / ".autokernel" / "lock")
    try:
        board = CampaignBoard(campaign.path)
        assert disabled(board) == ["start"]
        accepted, answer = say(board.overview, "start", experiments="3", place="notebook")
        assert not accepted and "drives the campaign already" in answer
        assert press(board.overview, "stop")[0]
    finally:
        lock.release()

    assert campaign._stop_asked()


async def test_a_target_that_cannot_be_judged_is_marked_with_the_reason(tmp_path):
    def judge_of(name):
        return ScriptedEvaluator(error=RunnerLost("no <b>process</b>") if name == "norm" else None)

    campaign = scripted_campaign(tmp_path, judge_of=judge_of)
    await campaign.run(experiments=2)
    board = CampaignBoard(campaign.path)

    assert rows(board)["norm"][0] == "✕ could not be judged"
    assert "norm could not be judged: RunnerLost: no <b>process</b>" in said(board)
    assert "<b>" not in board._repr_mimebundle_()[0]["text/html"]


async def test_an_experiment_that_waits_for_a_person_is_announced_and_decided_in_the_workbench(tmp_path):
    campaign = scripted_campaign(tmp_path, approval="approve")
    bench = Workbench(campaign, place="notebook", live=False)
    assert "checked" in find(bench.board.overview, data_action="approval")[0][1]
    running = asyncio.create_task(campaign.run(experiments=1))
    await until(lambda: campaign.runs["norm"].pending is not None)
    bench.refresh()

    assert "▲ experiment 1 waits for you" in rows(bench.board)["norm"][0]
    assert "▲ waits for you" in said(bench.board)
    assert press(bench.card, "keep")[0]
    await asyncio.wait_for(running, 30)
    assert campaign.runs["norm"].best.number == 1


def test_who_decides_is_written_to_every_run(campaign):
    board = CampaignBoard(campaign.path)
    press(board.overview, "approval", "true")

    assert {Target.load(run.path).approval for run in campaign.runs.values()} == {"approve"}
    board.refresh()
    assert "checked" in find(board.overview, data_action="approval")[0][1]


async def test_the_workbench_of_a_campaign_has_the_board_on_top_and_the_chosen_run_below(campaign):
    await campaign.run(experiments=2)
    bench = Workbench(campaign.path)
    assert bench.children == (bench.board,)
    assert [type(part).__name__ for part in bench.parts][:2] == ["CampaignOverview", "Controls"]
    assert bench.history.rows and bench.controls.label.endswith("norm")

    bench.card.selected = 1
    assert bench.selected == 1 and "experiment 1" in text_of(bench.trace.tree)
    bench.board.choose("soft")
    assert bench.controls.label.endswith("soft") and bench.card.selected == 0
    bench.refresh()
    static = bench._repr_mimebundle_()[0]["text/html"]
    assert "The model 1.111×" in static and "soft" in static
    tasks = [part._task for part in bench.parts]
    bench.close()
    await asyncio.wait([task for task in tasks if task], timeout=30)
    assert all(task.done() for task in tasks if task)


def test_a_run_keeps_its_own_workbench(tmp_path, campaign):
    assert Workbench(campaign.runs["norm"].path).board is None
    assert is_campaign(campaign) and is_campaign(str(campaign.path))
    assert not is_campaign(campaign.runs["norm"]) and not is_campaign(tmp_path) and not is_campaign(None)


def test_a_folder_that_is_no_campaign_is_a_sentence_and_no_button_raises(tmp_path):
    board = CampaignBoard(tmp_path / "nothing")

    assert "is no campaign: it has no campaign.toml" in said(board)
    assert board.children == (board.overview,) and board.page is None
    assert "is no campaign" in board._repr_mimebundle_()[0]["text/html"]
    for action in ("start", "pause", "resume", "stop", "choose", "approval"):
        accepted, answer = say(board.overview, action, "norm", experiments="1", place="notebook")
        assert not accepted and "is no campaign" in answer


def test_damage_is_a_sentence_and_a_campaign_that_is_repaired_appears(campaign):
    plan = campaign.path / "campaign.toml"
    text = plan.read_text()
    plan.write_text("[[target]]\nrun = 3\n")
    board = CampaignBoard(campaign.path)
    assert "correct it" in said(board) and board.page is None
    plan.write_text("model = 'no targets'\ntarget = []\n")
    board.refresh()
    assert "a campaign has at least one [[target]]" in said(board)

    plan.write_text(text)
    board.refresh()
    assert "Next norm" in said(board) and board.page is not None

    (campaign.path / "runs" / "soft" / "target.toml").unlink()
    board.refresh()
    assert "soft" in said(board) and "has no target.toml" in said(board)


@pytest.mark.parametrize("count", ["", "0", "-3", "2.5"])
def test_a_number_of_experiments_that_is_none_is_refused(campaign, count):
    accepted, answer = press(CampaignBoard(campaign.path).overview, "start", experiments=count, place="notebook")

    assert not accepted and ("no number" in answer or "at least one" in answer)


def test_a_place_that_is_none_and_a_start_without_an_event_loop_are_refused(campaign):
    board = CampaignBoard(campaign.path)
    assert press(board.overview, "start", experiments="1", place="the cloud")[0] is False
    accepted, answer = press(board.overview, "start", experiments="1", place="notebook")
    assert not accepted and "start it detached" in answer
    with pytest.raises(UsageError, match="detached or notebook"):
        CampaignBoard(campaign.path, place="the cloud")


async def test_a_detached_start_that_fails_says_why(campaign, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", str(campaign.path))  # no Python starts with that
    board = CampaignBoard(campaign.path)
    assert press(board.overview, "start", experiments="2", place="detached")[0]
    assert disabled(board) == ["start", "pause", "stop"]

    await until(lambda: "the process ended at once" in said(board))
    assert disabled(board) == ["pause", "stop"]
    board.close()


@pytest.mark.slow
async def test_a_detached_campaign_is_started_followed_and_stopped_with_real_kernels(tmp_path):
    sizes = (Timing(shape={"M": 64, "N": 256}),)
    targets = [
        CampaignTarget(operation="rmsnorm", share=0.3, name="norm", timing=sizes),
        CampaignTarget(operation="softmax", share=0.2, name="soft", timing=sizes),
    ]
    campaign = Campaign.create(targets, root=tmp_path, device="cpu")
    bench = Workbench(campaign.path)
    accepted, answer = press(bench.board.overview, "start", experiments="40", place="detached")
    assert accepted and "a process of its own" in answer

    await until(lambda: bench.history.rows[:1] and "driven by process" in said(bench.board), 150)
    press(bench.board.overview, "stop")
    await until(lambda: campaign.driver is None, 120)
    bench.refresh()

    assert "it ended: a person" in said(bench.board)
    assert RunFolder(campaign.runs["norm"].path).best is not None
    bench.close()
