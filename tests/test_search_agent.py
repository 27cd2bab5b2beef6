from __future__ import annotations

import asyncio
import dataclasses
import doctest
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from autokernel import starters
from autokernel.agents import Context, Exhausted, constants, make
from autokernel.agents.constants import replace, tunables
from autokernel.agents.search import SearchAgent
from autokernel.errors import UsageError
from autokernel.experiment import Experiment
from autokernel.history import blob_id
from autokernel.measurement import Ratio
from autokernel.target import Target, Timing

TARGET = Target(
    reference="rmsnorm", operation="rmsnorm", tag="x", backend="cpp", device="cpu", dtype="float32",
    timing=(Timing(shape={"M": 1, "N": 1}),),
)  # fmt: skip


def kernel(**values: object) -> str:
    """A kernel's text that declares the constants and uses them."""
    lines = "".join(f"{name} = {value}\n" for name, value in values.items())
    return f"{lines}\n\ndef kernel_fn(x):\n    return run(x, {', '.join(values)})\n"


class Run:
    """A run whose kernels take ``us(constants)``; None means that verification rejects it."""

    def __init__(self, start: str, us: Callable[[dict], float | None], agent: SearchAgent | None = None) -> None:
        self.us, self.agent, self.best = us, agent or SearchAgent(), 0
        self.texts, self.hypotheses = [start], ["start"]
        self.experiments = [
            Experiment(number=0, decision="baseline", correctness="PASS", commit="0", blob=blob_id(start))
        ]

    def cost(self, number: int) -> float | None:
        return self.us({one.name: one.value for one in tunables(self.texts[number], cores=64)})

    def context(self) -> Context:
        return Context(
            folder=Path(), target=TARGET, description="", signature="", kernel=self.texts[self.best],
            best=self.experiments[self.best], experiments=tuple(self.experiments),
            judged=frozenset(one.blob for one in self.experiments), comments=(), refused="",
            source=lambda number: self.texts[number], diff=lambda number: "", record=lambda number: {},
        )  # fmt: skip

    def step(self) -> Experiment:
        proposal = asyncio.run(self.agent.propose(self.context()))
        number = len(self.texts)
        self.texts.append(proposal.source)
        self.hypotheses.append(proposal.hypothesis)
        us = self.cost(number)
        ratio = None if us is None else (self.cost(self.best) or 0.0) / us
        kept = ratio is not None and ratio > 1.01
        experiment = Experiment(
            number=number, decision="keep" if kept else "revert", correctness="FAIL" if us is None else "PASS",
            commit=str(number), parent=str(self.best), blob=blob_id(proposal.source),
            speedups={} if ratio is None else {"incumbent": Ratio(ratio, ratio, ratio)},
        )  # fmt: skip
        self.experiments.append(experiment)
        self.best = number if kept else self.best
        return experiment

    def steps(self, most: int = 500) -> Run:
        """Make experiments until the agent has nothing more to try, or ``most``."""
        for _number in range(most):
            try:
                self.step()
            except Exhausted:
                break
        return self

    def values(self, number: int) -> dict:
        return {one.name: one.value for one in tunables(self.texts[number], cores=64)}


# The constants of a text


def test_only_constants_in_capitals_at_the_top_level_that_are_used_are_tunable():
    text = (
        'KERNEL_TYPE = "rmsnorm"\nBACKEND = "cpp"\nBLOCK = 64\nUSE_TMA: bool = False\nsmall = 4\nCPP_SRC = """x"""\n'
        "EPS = 1\nLOG2E = 1.44\nMODE = 'a'  # tune: a, b\nNEGATIVE = -1\nSUM = 1 + 2\nUNUSED = 64\n"
        "TWICE = 2\nTWICE = 4\n"
        "\ndef kernel_fn(x):\n    INNER = 4\n"
        "    run(x, KERNEL_TYPE, BACKEND, BLOCK, USE_TMA, CPP_SRC, EPS, LOG2E, MODE, NEGATIVE, SUM, TWICE, INNER)\n"
    )
    assert [one.name for one in tunables(text)] == ["BLOCK", "USE_TMA", "MODE"]


@pytest.mark.parametrize(
    ("value", "choices"),
    [
        ("NUM_WARPS = 4", (1, 2, 4, 8, 16, 32)),
        ("NUM_STAGES = 2", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("NUM_THREADS = 1", (1, 2, 4, 6)),
        ("THREADS_PER_BLOCK = 256", (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        ("LANES = 1", (1, 2, 4, 8, 16)),
        ("BLOCK = 96", (24, 48, 96, 192, 384)),
        ("AHEAD = 0", (0, 1, 2, 4)),
        ("USE_TMA = True", (False, True)),
        ("TILE = 3  # tune: 1, 2, 5", (1, 2, 3, 5)),
        ("TILE = 3  # rows together; one of 1, 2, 5: more need registers", (1, 2, 3, 5)),
        ("ORDER = 'row'  # tune: row, column", ("row", "column")),
        ("SCALE = 0.5  # tune: 0.25, 1.0", (0.25, 0.5, 1.0)),
    ],
)
def test_the_values_of_a_constant(value, choices):
    name = value.split(" = ")[0]
    (tunable,) = tunables(f"{value}\nprint({name})\n", cores=6)
    assert tunable.choices == choices


def test_a_constant_carries_what_its_comment_says():
    (tunable,) = tunables("AHEAD = 0  # rows fetched ahead; one of 0, 1, 2\nprint(AHEAD)\n")
    assert (tunable.meaning, tunable.choices) == ("rows fetched ahead", (0, 1, 2))


def test_replacing_touches_nothing_but_the_value():
    text = (
        '"""Größe é"""\nÄ = 1; BLOCK_M = 64  # a comment with 64\nBLOCK_N: int = (\n    128\n)\nf(BLOCK_M, BLOCK_N)\n'
    )
    block_m, block_n = tunables(text)

    changed = replace(text, [(block_m, 32), (block_n, 256)])
    assert changed == text.replace("BLOCK_M = 64", "BLOCK_M = 32").replace("    128\n", "    256\n")


@pytest.mark.parametrize("text", ["x = 1\n", "def broken(:\n", "", "BLOCK = 64\n"])
def test_a_kernel_without_constants_exhausts_the_search_at_once(text):
    with pytest.raises(Exhausted, match="declares no constants"):
        Run(text, lambda values: 1.0).step()


@pytest.mark.parametrize("operation", ["rmsnorm", "softmax", "layernorm", "matmul"])
@pytest.mark.parametrize("backend", ["cpp", "triton", "cuda"])
def test_a_starter_offers_the_search_something_to_change(operation, backend):
    assert tunables(starters.source(operation, backend))


def test_the_rmsnorm_starter_for_cpus_offers_enough_for_a_demo():
    run = Run(starters.source("rmsnorm", "cpp"), lambda values: 1.0).steps()
    assert len(run.texts) > 40


# The search


def bowl(**best: int) -> Callable[[dict], float]:
    """A landscape with one valley: each constant costs the more, the more steps it is away from the best."""
    return lambda values: 100.0 * math.exp(sum(0.2 * abs(math.log2(values[name] / best[name])) for name in best))


def test_a_search_finds_the_best_constants_and_ends():
    us = bowl(NUM_WARPS=16, BLOCK=256, NUM_STAGES=4)
    run = Run(kernel(NUM_WARPS=4, BLOCK=64, NUM_STAGES=2), us).steps()

    assert run.cost(run.best) == pytest.approx(100.0)
    assert run.best < 16
    assert len(run.texts) == len(set(run.texts))


def test_every_constant_is_changed_once_before_one_that_does_not_matter_is_changed_again():
    run = Run(kernel(A=64, B=64, C=64, D=64), lambda values: 100.0).steps(4)
    changed = {name for number in range(1, 5) for name, value in run.values(number).items() if value != 64}
    assert changed == {"A", "B", "C", "D"}


def test_a_search_goes_on_with_the_constant_that_moved_most():
    run = Run(kernel(LANES=1, BLOCK=64, NUM_WARPS=4, UNROLL=1), bowl(LANES=64, BLOCK=64, NUM_WARPS=4, UNROLL=1)).steps(
        8
    )
    assert run.values(run.best)["LANES"] == 64


def test_a_constant_that_does_not_matter_is_left_for_last():
    def us(values):
        return 100.0 + 10 * abs(math.log2(values["MATTERS"] / 512))

    run = Run(kernel(IDLE=64, MATTERS=64), us).steps(12)
    assert run.values(run.best)["MATTERS"] == 512
    assert sum(run.values(number)["IDLE"] != 64 for number in range(1, run.best)) <= 1


def test_constants_are_tried_in_the_order_in_which_they_are_declared():
    run = Run(kernel(NUM_THREADS=1, LANES=1, STREAM=False), lambda values: 100.0).steps(3)
    changed = [hypothesis.split(":")[0] for hypothesis in run.hypotheses[1:]]
    assert changed == [f"NUM_THREADS 1 -> {run.values(1)['NUM_THREADS']}", "LANES 1 -> 4", "STREAM False -> True"]


def test_a_gain_that_is_not_certain_counts_less():
    start = kernel(A=64, B=64)
    run = Run(start, lambda values: 100.0).steps(2)
    for number, ratio in ((1, Ratio(1.3, 0.6, 2.8)), (2, Ratio(1.2, 1.19, 1.21))):
        run.experiments[number] = dataclasses.replace(run.experiments[number], speedups={"incumbent": ratio})
    run.step()
    assert run.values(1)["A"] != 64 and run.values(2)["B"] != 64
    assert run.values(3)["B"] not in (64, run.values(2)["B"])


def test_values_beyond_one_that_fails_are_left_for_last():
    run = Run(kernel(BLOCK=64, NUM_WARPS=4), lambda values: None if values["BLOCK"] > 64 else 100.0).steps()
    failing = [number for number in range(1, len(run.texts)) if run.values(number)["BLOCK"] > 64]
    singly = [number for number in failing if run.values(number)["NUM_WARPS"] == 4]
    assert singly[1] > 8
    assert not run.best


def test_a_search_leaves_a_slope_that_only_a_pair_of_changes_climbs():
    def us(values):
        return 50.0 if (values["A"], values["B"]) == (2, 2) else 100.0 + values["A"] + values["B"]

    run = Run(kernel(A=1, B=1), us).steps()
    assert run.values(run.best) == {"A": 2, "B": 2}


def test_a_search_also_starts_from_the_second_best():
    run = Run(kernel(A=64, B=64, C=64), lambda values: 100.0 + sum(value != 64 for value in values.values())).steps()
    assert any("the second best" in hypothesis for hypothesis in run.hypotheses)
    assert any(sum(value != 64 for value in run.values(number).values()) == 2 for number in range(1, len(run.texts)))


def test_a_neighbourhood_is_searched_after_sixty_kernels():
    run = Run(kernel(**dict.fromkeys("ABCDEFGH", 64)), lambda values: 100.0).steps()
    assert len(run.texts) == 61
    with pytest.raises(Exhausted, match=r"neighbourhood of experiment 0 was searched: 60 kernels .*A, B, C"):
        run.step()


def test_a_hypothesis_says_what_changes_and_what_is_expected():
    start = "LANES = 1  # partial sums\nprint(LANES)\n"
    run = Run(start, bowl(LANES=16)).steps(2)
    assert run.hypotheses[1] == "LANES 1 -> 4: 1.11x expected, not changed yet (partial sums)"
    assert run.hypotheses[2] == "LANES 4 -> 16: 1.22x expected, going on from the values that were tried"


def test_a_search_is_the_same_for_the_same_seed_and_goes_on_after_a_restart():
    start = kernel(NUM_WARPS=4, BLOCK=64, NUM_STAGES=2)
    us = bowl(NUM_WARPS=16, BLOCK=256, NUM_STAGES=4)
    first, again, other = (Run(start, us, SearchAgent(seed)).steps(20).texts for seed in (5, 5, 6))
    restarted = Run(start, us, SearchAgent(5)).steps(10)
    restarted.agent = SearchAgent(5)

    assert first == again == restarted.steps(10).texts
    assert first != other


def test_kernels_that_somebody_else_wrote_do_not_disturb_a_search():
    run = Run(kernel(BLOCK=64), bowl(BLOCK=256))
    run.texts.append("import other\n" + kernel(BLOCK=1, STRANGE=3))
    run.experiments.append(
        Experiment(number=1, decision="revert", correctness="FAIL", commit="1", parent="0", blob=blob_id(run.texts[1]))
    )
    run.hypotheses.append("")
    run.steps()
    assert run.values(run.best) == {"BLOCK": 256}


def test_a_search_needs_half_as_many_experiments_as_random_changes():
    def rough(values):  # constants of unequal weight, one pair that interacts, a ripple on top
        us = bowl(LANES=32, BLOCK=256, NUM_WARPS=8)(values) * (1.3 if not values["STREAM"] else 1.0)
        us *= 1.1 if values["AHEAD"] == 0 or not values["STREAM"] else 1.0
        return us * (1 + 0.01 * math.sin(7 * values["LANES"] + values["BLOCK"]))

    start = kernel(LANES=1, BLOCK=64, NUM_WARPS=4, STREAM=False, AHEAD=0)
    everything = {name: tunable.choices for name, tunable in ((one.name, one) for one in tunables(start))}
    everything["LANES"] = everything["BLOCK"] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

    def after_random(seed: int, experiments: int) -> float:
        draw = random.Random(seed)
        tried = [{name: draw.choice(choices) for name, choices in everything.items()} for _ in range(experiments)]
        return min(map(rough, tried))

    def after_search(seed: int, experiments: int) -> float:
        run = Run(start, rough, SearchAgent(seed)).steps(experiments)
        return run.cost(run.best)

    searched = sorted(after_search(seed, 16) for seed in range(9))[4]
    drawn = sorted(after_random(seed, 32) for seed in range(99))[49]
    assert searched < drawn


# By name


def test_agents_are_made_by_name():
    assert (make("auto").name, make("search").name, make("human").name) == ("search", "search", "human")
    with pytest.raises(UsageError, match="unknown agent"):
        make("replay:")
    with pytest.raises(UsageError, match="no run"):
        make("replay:/nowhere")


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(constants).failed == 0
