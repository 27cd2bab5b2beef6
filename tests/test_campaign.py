"""A campaign over several runs: order, budgets, stopping, resuming, and what a person reads."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import torch

import autokernel as ak
from autokernel.campaign import Campaign
from autokernel.campaign_plan import CampaignTarget, speedup_in_model
from autokernel.errors import RunBusy, RunDamaged, RunnerLost, UsageError
from autokernel.scheduler import SchedulerSettings
from autokernel.target import Timing
from examples.models import llama
from tests.command_line import autokernel
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel, measurement_of

TWO = [
    CampaignTarget(operation="rmsnorm", share=0.3, name="norm", start=kernel(1.0), ceiling=4.0),
    CampaignTarget(operation="softmax", share=0.2, name="softmax", start=kernel(1.0).replace("rmsnorm", "softmax")),
]
TURNS_OF_TWO = SchedulerSettings(turn=2, patience=2.0)


def sources(operation, *speeds):
    return [kernel(speed, extra=f"# {index}").replace("rmsnorm", operation) for index, speed in enumerate(speeds)]


def scripted(speeds=None, **evaluator):
    """Judges and agents that need no compiler; by default each proposal is a little faster than the last."""
    speeds = speeds or {}

    def agent_of(name):
        operation = "rmsnorm" if name == "norm" else "softmax"
        return ScriptedAgent(sources(operation, *speeds.get(name, [1.1 + 0.1 * step for step in range(30)])))

    return {"judge_of": lambda name: ScriptedEvaluator(**evaluator), "agent_of": agent_of}


def new(tmp_path, targets=TWO, *, scheduler=TURNS_OF_TWO, **options):
    return Campaign.create(targets, root=tmp_path, device="cpu", scheduler=scheduler, **{**scripted(), **options})


async def test_the_largest_offer_comes_first_and_each_turn_says_why(tmp_path):
    campaign = new(tmp_path)

    first = campaign.next
    summary = await campaign.run(experiments=4)

    assert first.name == "norm"
    assert summary.turns == ("norm", "norm")
    assert summary.experiments == 4
    assert summary.stopped == "4 experiments were made"
    turns = [event for event in campaign.events() if event["kind"] == "turn"]
    assert [turn["target"] for turn in turns] == ["norm", "norm"]
    assert all("% of the model's time" in turn["reason"] for turn in turns)


async def test_a_target_that_brings_nothing_is_left_and_comes_back(tmp_path):
    campaign = new(tmp_path, **scripted({"norm": [0.5] * 30, "softmax": [0.5] * 30}))

    summary = await campaign.run(experiments=12)

    assert summary.turns.count("norm") >= 2
    assert summary.turns.count("softmax") >= 2
    assert all(one.measured for one in campaign.standings)
    assert summary.model_speedup == 1.0


async def test_the_model_speedup_follows_from_the_shares_and_the_kept_kernels(tmp_path):
    campaign = new(tmp_path, **scripted({"norm": [2.0], "softmax": [4.0]}))

    summary = await campaign.run()

    assert {one.name: one.speedup for one in campaign.standings} == {"norm": 2.0, "softmax": 4.0}
    assert summary.model_speedup == pytest.approx(1 / (0.3 / 2 + 0.2 / 4 + 0.5))
    assert "norm: the agent has nothing more to try" in summary.stopped


IN_MODEL = (
    Timing(shape={"M": 64, "N": 256}, weight=3.0, model_us=500.0),  # the scripted operator of PyTorch takes 100 us
)


@pytest.mark.parametrize(("speed", "over_model"), [(2.0, 10.0), (0.5, 2.5)])
async def test_where_the_time_in_the_model_is_known_the_prediction_is_over_that(tmp_path, speed, over_model):
    campaign = new(
        tmp_path, [dataclasses.replace(TWO[0], timing=IN_MODEL, start=kernel(speed))], **scripted({"norm": []})
    )

    summary = await campaign.run()

    (norm,) = campaign.standings
    assert (norm.speedup, norm.over) == (pytest.approx(over_model), "the model")
    assert summary.model_speedup == pytest.approx(1 / (0.3 / over_model + 0.7))
    assert norm.ceiling == pytest.approx(50.0)  # 500 us over the scripted floor of 10 us
    assert campaign.runs["norm"].best.speedup.value == pytest.approx(speed)  # the run's own is over the operator


def test_sizes_count_by_their_time_in_the_model(tmp_path):
    timing = (IN_MODEL[0], Timing(shape={"M": 8, "N": 256}, weight=1.0, model_us=20.0))
    campaign = new(tmp_path, [dataclasses.replace(TWO[0], timing=timing)])
    (run,) = campaign.runs.values()
    cases = measurement_of(100.0).cases + measurement_of(40.0).cases
    run.judgement = lambda number: (None, dataclasses.replace(measurement_of(100.0), cases=cases), None)

    assert speedup_in_model(run, 0) == pytest.approx(4.0 / (3.0 * 100 / 500 + 1.0 * 40 / 20))


async def test_it_goes_on_where_it_stopped_also_in_a_new_process(tmp_path):
    campaign = new(tmp_path)
    await campaign.run(experiments=3)
    again = Campaign(campaign.path, **scripted())

    await again.run(experiments=2)

    assert sum(one.experiments for one in again.standings) == 5
    assert [row.tag for row in again.rows()].count("norm") >= 4  # with its baseline
    assert len([event for event in again.events() if event["kind"] == "stopped"]) == 2


async def test_the_ceiling_is_that_of_the_measurement_once_there_is_one(tmp_path):
    campaign = new(tmp_path)
    before = campaign.standings[1].ceiling
    await campaign.run(experiments=1)
    (norm, softmax) = campaign.standings

    assert before is None
    assert norm.ceiling == pytest.approx(10.0)  # the scripted floor is 10 us, PyTorch's time 100 us
    assert softmax.ceiling is None


async def test_budgets_of_tokens_and_time_end_it(tmp_path):
    campaign = new(tmp_path)

    by_tokens = await campaign.run(tokens=30)
    by_time = await campaign.run(minutes=1e-9)

    assert by_tokens.stopped.startswith("40 tokens were used, of 30")  # a turn is finished: two proposals of 10
    assert by_time.experiments == 0
    assert "minutes are over" in by_time.stopped


async def test_another_process_stops_it_after_the_experiment_in_progress(tmp_path):
    campaign = new(tmp_path, **scripted(seconds=0.3))
    running = asyncio.create_task(campaign.run())
    while not campaign.runs["norm"].experiments or not campaign.events():
        await asyncio.sleep(0.02)

    Campaign(campaign.path).stop()
    summary = await asyncio.wait_for(running, 30)

    assert "stop" in summary.stopped
    assert summary.experiments <= 3
    assert campaign.driver is None


async def test_two_drivers_of_one_campaign_exclude_each_other(tmp_path):
    campaign = new(tmp_path, **scripted(seconds=0.3))
    running = asyncio.create_task(campaign.run(experiments=1))
    while campaign.driver is None:
        await asyncio.sleep(0.01)

    with pytest.raises(RunBusy, match="is being driven by process"):
        await Campaign(campaign.path).run()
    await running


async def test_a_target_that_cannot_be_judged_does_not_hold_up_the_others(tmp_path):
    def judge_of(name):
        return ScriptedEvaluator(error=RunnerLost("no process could be started") if name == "norm" else None)

    campaign = new(tmp_path, **{**scripted({"softmax": [2.0]}), "judge_of": judge_of})

    summary = await campaign.run()

    assert campaign.standings[1].speedup == 2.0
    assert "norm: RunnerLost: no process could be started" in summary.stopped


def test_the_plan_is_readable_and_read_back(tmp_path):
    campaign = new(tmp_path, model="two layers")
    text = (campaign.path / "campaign.toml").read_text()

    assert 'run = "norm"\nshare = 0.3' in text
    assert "ceiling = 4.0" in text
    assert "turn = 2" in text
    assert Campaign(campaign.path).plan == campaign.plan
    assert campaign.plan.model == "two layers"


def test_a_targets_sizes_reach_its_run_with_options_and_weights(tmp_path):
    timing = (
        Timing(shape={"M": 64, "N": 256}, weight=3.0),
        Timing(shape={"M": 8, "N": 256}, options={"eps": 1e-5}, weight=1.0),
    )
    target = dataclasses.replace(TWO[0], timing=timing, dtype="bfloat16")

    campaign = new(tmp_path, [target])

    assert campaign.runs["norm"].target.timing == timing
    assert campaign.runs["norm"].target.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "at least one target"),
        ([dataclasses.replace(TWO[0], share=0.9), TWO[1]], "add up to 1.100"),
        ([TWO[0], dataclasses.replace(TWO[1], name="norm")], "two targets are called norm"),
        ([dataclasses.replace(TWO[0], timing=(Timing(shape={"K": 3}),))], "does not fit rmsnorm"),
        ([dataclasses.replace(TWO[0], timing=(Timing(shape={"M": 3, "N": 4}, weight=0.0),))], "must be above 0"),
        (
            [dataclasses.replace(TWO[0], timing=(Timing(shape={"M": 3, "N": 4}, options={"epsilon": 1.0}),))],
            "whose options are eps",
        ),
        ([dataclasses.replace(TWO[0], operation="conv9d")], "conv9d"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_nothing_behind(tmp_path, targets, message):
    with pytest.raises(UsageError, match=message):
        new(tmp_path, targets)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def report():
    """The profile of a small model; one thread, so that a busy machine does not slow it down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = llama.Llama(layers=2, width=64, heads=4, hidden=96).eval()
    yield ak.profile(model, llama.example_inputs(length=32), repeats=1, floors=False)
    torch.set_num_threads(threads)


def test_the_targets_of_a_profile_have_the_models_own_sizes_options_and_shares(report):
    targets = report.campaign_targets(least_share=0.0)
    by_operation = {target.operation: target for target in reversed(targets)}
    norm = by_operation["rmsnorm"]

    assert {"rmsnorm", "matmul", "flash_attention", "fused_mlp"} <= set(by_operation)
    assert sum(target.share for target in targets) <= 1
    assert norm.dtype == "float32"
    assert norm.timing[0].shape["N"] == 64
    assert set(norm.timing[0].options) <= {"eps"}


def test_a_campaign_is_made_from_a_profile(report, tmp_path):
    targets = report.campaign_targets(most=2, least_share=0.0)

    campaign = Campaign.create(targets, model=report.model, root=tmp_path, device="cpu")

    assert campaign.plan.model == "Llama"
    assert list(campaign.runs) == [target.name for target in targets]
    assert [run.target.timing for run in campaign.runs.values()] == [target.timing for target in targets]


def test_in_another_dtype_the_times_of_the_model_do_not_count(report, tmp_path):
    file = report.save(tmp_path / "profile.json")
    (of_model,) = report.campaign_targets(most=1)

    autokernel("campaign", "new", "--profile", file, "--most", 1, "--dtype", "bfloat16", "--root", tmp_path)

    (run,) = Campaign(tmp_path / "campaign-1").runs.values()
    assert run.target.dtype == "bfloat16"
    assert [one.shape for one in run.target.timing] == [one.shape for one in of_model.timing]
    assert all(one.model_us is not None for one in of_model.timing)
    assert all(one.model_us is None for one in run.target.timing)


def test_a_profile_without_a_target_that_is_covered_says_what_to_do(report):
    with pytest.raises(UsageError, match="write a spec for what it lists"):
        report.campaign_targets(least_share=1.0)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_is_a_fraction(share):
    with pytest.raises(UsageError, match="share of rmsnorm"):
        CampaignTarget(operation="rmsnorm", share=share)


def test_a_folder_that_is_no_campaign_and_a_damaged_plan_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match="is no campaign"):
        Campaign(tmp_path)
    campaign = new(tmp_path)
    (campaign.path / "campaign.toml").write_text("[[target]]\nrun = 3\n")
    with pytest.raises(RunDamaged, match="correct it"):
        Campaign(campaign.path)


async def test_targets_are_worked_on_at_once_and_the_budget_holds(tmp_path):
    path = new(tmp_path).path
    under_way, most = [], []

    class Watched(ScriptedEvaluator):
        def evaluate(self, source, **options):
            under_way.append(self)
            most.append(len(under_way))
            try:
                return super().evaluate(source, **options)
            finally:
                under_way.remove(self)

    options = {**scripted(), "judge_of": lambda name: Watched(seconds=0.1)}
    campaign = Campaign(path, at_once=2, **options)
    summary = await campaign.run(experiments=7)

    assert summary.experiments == 7
    assert set(summary.turns) == {"norm", "softmax"}
    assert max(most) == 2
    assert summary.stopped == "7 experiments were made"


async def test_a_stop_of_one_run_ends_all_that_are_worked_on(tmp_path):
    path = new(tmp_path).path
    campaign = Campaign(path, at_once=2, **scripted(seconds=0.05))
    run = asyncio.create_task(campaign.run())
    while not all(one.experiments for one in campaign.standings):
        await asyncio.sleep(0.02)
    campaign.runs["norm"].send("stop")
    summary = await asyncio.wait_for(run, 20)

    assert summary.stopped == "a person said stop"
    assert campaign.driver is None
