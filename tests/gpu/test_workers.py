"""Workers with a GPU each: the verdict and the times are those of the evaluator in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

pytest.importorskip("distributed", reason="needs autokernel[dask]")

from autokernel import starters
from autokernel.evaluator import Evaluation, Evaluator
from autokernel.verdict import Stage
from autokernel.workers import DaskEvaluator, open_workers

pytestmark = pytest.mark.gpu

STAGES = [Stage.SMOKE]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with open_workers(f"local:{min(2, torch.cuda.device_count())}", device="cuda") as client:
        yield client


@pytest.fixture(scope="module")
def source() -> str:
    return starters.source("rmsnorm", "triton")


def test_the_verdict_on_a_seed_is_the_local_evaluators(client, source):
    with Evaluator("rmsnorm", device="cuda") as local, DaskEvaluator(client, "rmsnorm", device="cuda") as evaluator:
        here, there = (judge.verify(source, seed=11) for judge in (local, evaluator))

    assert here.accepted and there.accepted, there.reason
    assert [(stage.name, stage.status, len(stage.cases)) for stage in here.stages] == [
        (stage.name, stage.status, len(stage.cases)) for stage in there.stages
    ]
    assert ", GPU " in there.details["worker"]


def test_times_on_each_worker_agree_with_those_of_this_process(client, source):
    def timed(judge: Evaluator | DaskEvaluator, seed: int) -> Evaluation:
        return judge.evaluate(source, seed=seed, stages=STAGES)

    with Evaluator("rmsnorm", device="cuda") as local:
        here = [timed(local, seed) for seed in range(3)]
    with DaskEvaluator(client, "rmsnorm", device="cuda") as evaluator, ThreadPoolExecutor(evaluator.lanes) as threads:
        there = list(threads.map(lambda seed: timed(evaluator, seed), range(3 * evaluator.lanes)))

    assert len({one.verdict.details["worker"] for one in there}) == evaluator.lanes
    ratios = [one.measurement.speedups["pytorch"] for one in here if one.measurement is not None]
    low, high = min(ratio.low for ratio in ratios), max(ratio.high for ratio in ratios)
    for one in there:
        assert one.measurement is not None, one.verdict.reason
        ratio = one.measurement.speedups["pytorch"]
        assert ratio.low < 1.01 * high and ratio.high > 0.99 * low, (ratio, low, high)
