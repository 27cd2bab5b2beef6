"""The ranking of a model's targets: the figures that it shows, what-ifs, and the campaign that it makes."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import torch
from autokernel_widgets import AmdahlRanking, Workbench
from autokernel_widgets.markup import text_of
from autokernel_widgets.what_if import limit_of

import autokernel as ak
from autokernel.campaign import Campaign
from autokernel.errors import UsageError
from autokernel.runfolder import RunFolder
from examples.models import llama
from tests.widgets.clicking import find, nodes, press, say
from tests.widgets.small_report import HOSTILE, small_report


@pytest.fixture
def ranking(tmp_path):
    return AmdahlRanking(small_report(), campaigns=tmp_path / "campaigns", runs=tmp_path / "runs", device="cpu")


def cells(ranking):
    rows = [one for one in nodes(ranking.table.tree) if one[0] == "tr" and "data-id" in one[1]]
    return {row[1]["data-id"].removeprefix("target "): [text_of(cell) for cell in row[2:]] for row in rows}


def slide(ranking, name, value):
    """Move a slider as a browser does."""
    ranking.sliders._handle_custom_msg({"slide": name, "value": value}, [])


def trace(ranking, name):
    return next(one for one in ranking.chart.figure["data"] if one["name"].startswith(name))


def test_each_target_stands_with_its_share_its_ceiling_and_what_it_would_bring(ranking):
    rows = cells(ranking)

    assert list(rows) == ["fused_mlp", "rmsnorm", "softmax", "strange-op"]
    mlp, norm, soft = rows["fused_mlp"], rows["rmsnorm"], rows["softmax"]
    assert mlp[1:6] == ["1", "fused_mlp", "2", "400", "40.0 %"]
    # 1 / (1 - 0.4) for free; 1 / (1 - 0.4 / 2) at half of its time
    assert mlp[7:10] == ["1.67×", "2.00×", "1.25×"]
    # 1 / (1 - 0.2 * 3 / 4) at a quarter of its time
    assert norm[7:10] == ["1.25×", "4.00×", "1.18×"]
    assert soft[8] == "~1.25×"  # its data fit the cache
    assert "layers.0.norm, norm" in norm[-1] and "eps=1e-06" in norm[-1]
    assert "no shipped operation" in rows["strange-op"][-1]


def test_the_chart_splits_each_bar_at_the_floor_and_the_rest_is_a_bar_of_its_own(ranking):
    assert trace(ranking, "above")["x"] == pytest.approx([20.0, 15.0, 2.0, 0.0])
    assert trace(ranking, "at it")["x"] == pytest.approx([20.0, 5.0, 8.0, 10.0, 20.0])
    assert trace(ranking, "model, it for free")["x"] == pytest.approx([1 / 0.6, 1.25, 1 / 0.9, 1 / 0.9])
    assert ranking.chart.problem == ""
    assert "fused_mlp 40 %" in ranking.chart.label


def test_two_times_on_the_first_three_is_predicted_by_amdahls_law(ranking):
    press(ranking.plan, "first")

    assert ranking.speedups == {"fused_mlp": 2.0, "rmsnorm": 2.0, "softmax": 2.0}
    assert ranking.predicted == pytest.approx(1 / (1 - 0.7 / 2))
    assert "The model 1.538×" in text_of(ranking.plan.tree)
    assert "1,000 µs → 650 µs" in text_of(ranking.plan.tree)


def test_the_boxes_choose_and_each_chosen_target_has_a_slider_that_changes_the_prediction_at_once(ranking):
    assert say(ranking.table, "choose", "true", target="rmsnorm") == (True, "")
    assert ranking.sliders.rows == [["rmsnorm", 2.0, 10.0]]
    slide(ranking, "rmsnorm", 4.0)

    assert ranking.speedups == {"rmsnorm": 4.0}
    assert "The model 1.176×" in text_of(ranking.plan.tree)
    assert trace(ranking, "left by")["x"] == pytest.approx([5.0])
    (box,) = [one for one in find(ranking.table, data_action="choose") if "checked" in one[1]]
    assert box[1]["aria-label"] == "choose rmsnorm"

    say(ranking.table, "choose", "false", target="rmsnorm")
    assert (ranking.speedups, ranking.sliders.rows) == ({}, [])
    assert len(ranking.chart.figure["data"]) == 4


@pytest.mark.parametrize(
    ("name", "value"), [("gone", 2.0), ("rmsnorm", "3"), ("rmsnorm", None), ("rmsnorm", float("nan"))]
)
def test_a_move_that_is_none_changes_nothing_and_one_beyond_the_end_stops_there(ranking, name, value):
    ranking.choose({"rmsnorm": 2.0})
    slide(ranking, name, value)
    assert ranking.speedups == {"rmsnorm": 2.0}

    slide(ranking, "rmsnorm", 1e9)
    assert ranking.speedups == {"rmsnorm": 10.0}


def test_the_chosen_can_be_set_to_their_floor_and_what_is_set_beyond_it_is_said(ranking):
    ranking.choose({"rmsnorm": 8.0, "softmax": 8.0, "strange-op": 3.0})
    said = text_of(ranking.plan.tree)
    assert "Faster than the device's floor allows: rmsnorm." in said  # softmax fits the cache, the other has no floor

    press(ranking.plan, "floor")
    assert ranking.speedups == pytest.approx({"rmsnorm": 4.0, "softmax": 1.25, "strange-op": 3.0})
    assert "Faster than" not in text_of(ranking.plan.tree)
    assert [value for _, value, _ in ranking.sliders.rows] == pytest.approx([4.0, 1.25, 3.0])

    press(ranking.plan, "none")
    assert ranking.speedups == {}


def test_a_target_that_is_called_like_its_operation_stands_for_itself(tmp_path):
    report = small_report()
    second = dataclasses.replace(report.targets[1], name="rmsnorm.2", share=0.1, device_us=100.0)
    ranking = AmdahlRanking(dataclasses.replace(report, targets=(*report.targets[:2], second)))
    ranking.choose({"rmsnorm": 2.0})
    assert ranking.predicted == pytest.approx(1 / (1 - 0.1))

    ranking.choose({"rmsnorm": 2.0, "rmsnorm.2": 2.0})
    assert ranking.predicted == pytest.approx(1 / (1 - 0.15))


@pytest.mark.parametrize("speedups", [{"nothing": 2.0}, {"rmsnorm": 0.5}, {"rmsnorm": "2"}, {"rmsnorm": 1000.0}])
def test_a_what_if_that_is_none_is_refused(ranking, speedups):
    with pytest.raises(UsageError):
        ranking.choose(speedups)
    assert ranking.speedups == {}


def test_a_slider_reaches_a_floor_that_is_far_away():
    target = small_report().targets[1]
    far = dataclasses.replace(target, variants=(dataclasses.replace(target.variants[0], floor_us=200 / 22.4),))

    assert limit_of(target) == 10.0
    assert limit_of(far) == 23.0


def test_the_button_makes_a_campaign_of_what_is_covered_and_shows_it(ranking, tmp_path):
    ranking.choose({"rmsnorm": 2.0, "softmax": 2.0, "strange-op": 2.0})
    said = text_of(ranking.plan.tree)
    assert "Make a campaign of 2 targets" in said
    assert "Left out, as no shipped operation covers them: strange-op." in said
    say(ranking.plan, "ask", "true")

    accepted, message = press(ranking.plan, "make")

    assert accepted, message
    campaign = Campaign(tmp_path / "campaigns" / "campaign-1")
    assert ranking.made == str(campaign.path)
    assert campaign.plan.model == "TwoLayers"
    assert campaign.plan.shares == {"rmsnorm": 0.2, "softmax": 0.1}
    assert campaign.plan.ceilings == {"rmsnorm": 4.0, "softmax": None}  # softmax has no floor that binds
    assert campaign.runs["rmsnorm"].target.timing[0].options == {"eps": 1e-6}
    assert campaign.runs["rmsnorm"].target.approval == "approve"
    (bench,) = ranking._below.children
    assert isinstance(bench, Workbench) and bench.board.chosen == "rmsnorm"
    ranking.close()


def test_one_target_becomes_a_run_of_its_own(ranking, tmp_path):
    ranking.choose({"softmax": 3.0})
    assert "Make a run for softmax" in text_of(ranking.plan.tree)

    assert press(ranking.plan, "make")[0]

    run = RunFolder(tmp_path / "runs" / "softmax-1")
    assert run.target.timing[0].shape == {"M": 64, "N": 128}
    assert run.target.dtype == "float32" and run.status.driver is None
    assert ranking._below.children[0].board is None


def test_nothing_is_made_of_what_is_not_covered_or_not_there(ranking, tmp_path):
    ranking.choose({"strange-op": 2.0})
    assert "disabled" in find(ranking.plan, data_action="make")[0][1]

    accepted, said = say(ranking.plan, "make")
    assert not accepted and "choose one in the table" in said
    accepted, said = say(ranking.table, "choose", "true", target="gone")
    assert not accepted and "no target 'gone'" in said
    assert list(tmp_path.iterdir()) == []


def test_a_profile_of_another_kind_of_device_makes_no_campaign_here(tmp_path):
    elsewhere = small_report(device={"kind": "cuda", "name": "NVIDIA H200"})
    ranking = AmdahlRanking(elsewhere, campaigns=tmp_path, runs=tmp_path, device="cpu")
    press(ranking.plan, "first")
    accepted, said = press(ranking.plan, "make")

    assert not accepted and "was profiled on NVIDIA H200 (cuda)" in said and "profile it here" in said
    assert list(tmp_path.iterdir()) == []


def test_a_saved_report_is_read_and_read_again_when_it_changes(tmp_path):
    path = small_report().save(tmp_path / "profile.json")
    ranking = AmdahlRanking(path)
    ranking.choose({"strange-op": 2.0})
    assert "Where the time of TwoLayers goes" in text_of(ranking.table.tree)

    other = small_report(model="Other")
    dataclasses.replace(other, targets=other.targets[:3]).save(path)
    assert ranking.refresh() is True
    assert "Where the time of Other goes" in text_of(ranking.table.tree)
    assert ranking.predicted == 1.0  # what was chosen is gone


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the profile"),
        ("no json", "cannot read the profile"),
        ("[1, 2]", "cannot read the profile"),
        ('{"format": 99}', "was written by another version"),
        ('{"format": 1, "targets": [{"name": 3}]}', "cannot read the profile"),
    ],
)
def test_a_path_that_is_no_report_is_a_sentence(tmp_path, content, said):
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_text(content)
    ranking = AmdahlRanking(path)

    assert said in text_of(ranking.table.tree)
    assert list(ranking.children) == [ranking.table]
    assert said in ranking._repr_mimebundle_()[0]["text/html"]
    for action in ("first", "floor", "none", "make"):  # a browser that still shows buttons of before
        accepted, answer = say(ranking.plan, action)
        assert not accepted and said in answer


def test_figures_that_are_no_numbers_are_a_sentence(tmp_path):
    path = small_report().save(tmp_path / "profile.json")
    path.write_text(path.read_text().replace('"device_us": 400.0', '"device_us": "long"'))

    assert "it may be damaged" in text_of(AmdahlRanking(path).table.tree)


def test_a_report_without_targets_and_one_that_nothing_covers_say_so():
    empty = AmdahlRanking(small_report(targets=()))
    assert "the profile of TwoLayers has no targets" in text_of(empty.table.tree)
    assert list(empty.children) == [empty.table]

    report = small_report()
    bare = AmdahlRanking(dataclasses.replace(report, targets=report.targets[3:]))
    assert "No shipped operation covers any target" in text_of(bare.plan.tree)
    press(bare.plan, "first")
    assert bare.speedups == {"strange-op": 2.0}


def test_a_report_that_appears_later_is_laid_out_then(tmp_path):
    ranking = AmdahlRanking(tmp_path / "profile.json")
    small_report().save(tmp_path / "profile.json")
    ranking.refresh()

    assert len(ranking.children) == 5


async def test_it_follows_the_file_and_closing_ends_that(tmp_path):
    path = small_report().save(tmp_path / "profile.json")
    ranking = AmdahlRanking(path)
    tasks = [part._task for part in ranking.parts]
    small_report(model="Renamed").save(path)
    while "Renamed" not in text_of(ranking.table.tree):
        await asyncio.sleep(0.05)

    ranking.close()
    await asyncio.wait(tasks, timeout=30)
    assert all(task.done() for task in tasks)


def test_without_widgets_the_table_and_the_chosen_what_if_are_shown_and_names_stay_text(ranking):
    ranking.choose({"rmsnorm": 2.0})
    static = ranking._repr_mimebundle_()[0]["text/html"]

    assert "The model 1.111×" in static and "<svg" in static and "<button" not in static
    assert HOSTILE not in static and "&lt;img src=x onerror" in static
    assert "<svg" in ranking.chart._repr_mimebundle_()[0]["text/html"]
    assert "<img" not in str(ranking.chart.figure)


def test_the_profile_of_a_real_model_is_shown_with_all_its_targets():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = llama.Llama(layers=2, width=64, heads=4, hidden=96).eval()
    report = ak.profile(model, llama.example_inputs(length=32), repeats=1, floors=False)
    torch.set_num_threads(threads)
    ranking = AmdahlRanking(report)

    assert list(cells(ranking)) == [target.name for target in report.targets]
    press(ranking.plan, "first")
    names = [target.name for target in report.targets[:3]]
    shares = sum(target.share for target in report.targets[:3])
    assert list(ranking.speedups) == names
    assert ranking.predicted == pytest.approx(1 / (1 - shares / 2))
