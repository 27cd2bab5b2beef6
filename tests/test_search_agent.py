from __future__ import annotations

import asyncio
import doctest
from pathlib import Path

import pytest

from autokernel.agents import Context, Exhausted, make, search
from autokernel.agents.search import SearchAgent, replace, tunables
from autokernel.errors import UsageError
from autokernel.experiment import Experiment
from autokernel.history import blob_id
from autokernel.target import Target, Timing

TARGET = Target(
    reference="rmsnorm", operation="rmsnorm", tag="x", backend="cpp", device="cpu", dtype="float32",
    timing=(Timing(shape={"M": 1, "N": 1}),),
)  # fmt: skip


def climb(start: str, better, *, seed: int = 0, most: int = 500) -> tuple[list[str], list[str]]:
    """Drive a search to its end; ``better(text, best)`` decides.  Returns texts and hypotheses."""
    agent, texts, hypotheses = SearchAgent(seed), [start], []
    best, experiments = 0, [Experiment(number=0, decision="baseline", blob=blob_id(start))]
    while len(texts) < most:
        context = Context(
            folder=Path(), target=TARGET, description="", signature="", kernel=texts[best], best=experiments[best],
            experiments=tuple(experiments), judged=frozenset(one.blob for one in experiments), comments=(), refused="",
            source=lambda number: texts[number], diff=lambda number: "", record=lambda number: {},
        )  # fmt: skip
        try:
            proposal = asyncio.run(agent.propose(context))
        except Exhausted:
            return texts, hypotheses
        texts.append(proposal.source)
        hypotheses.append(proposal.hypothesis)
        kept = better(proposal.source, texts[best])
        number = len(experiments)
        experiments.append(
            Experiment(number=number, decision="keep" if kept else "revert", blob=blob_id(proposal.source))
        )
        best = number if kept else best
    raise AssertionError("no end")


def value(text: str, name: str) -> int:
    scope: dict = {}
    exec(text, scope)
    return scope[name]


def test_only_constants_in_capitals_at_the_top_level_are_tunable():
    text = (
        'KERNEL_TYPE = "rmsnorm"\nBACKEND = "cpp"\nBLOCK = 64\nUSE_TMA: bool = False\nsmall = 4\nSRC = """x"""\n'
        "EPS = 1e-6\nMODE = 'a'  # tune: a, b\nNEGATIVE = -1\nSUM = 1 + 2\n\ndef kernel_fn(x):\n    INNER = 4\n"
    )
    assert [one.name for one in tunables(text)] == ["BLOCK", "USE_TMA", "MODE"]


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("NUM_WARPS = 4", (1, 2, 4, 8, 16, 32)),
        ("NUM_STAGES = 2", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("NUM_THREADS = 1", (1, 2, 4, 6)),
        ("LANES = 1", (1, 2, 4, 8, 16)),
        ("BLOCK = 96", (24, 48, 96, 192, 384)),
        ("USE_TMA = True", (False, True)),
        ("TILE = 3  # tune: 1, 2, 5", (1, 2, 3, 5)),
        ("ORDER = 'row'  # tune: row, column", ("row", "column")),
        ("SCALE = 0.5  # tune: 0.25, 1.0", (0.25, 0.5, 1.0)),
    ],
)
def test_the_values_of_a_constant(line, choices):
    (tunable,) = tunables(line + "\n", cores=6)
    assert tunable.choices == choices


def test_replacing_touches_nothing_but_the_value():
    text = '"""Größe é"""\nÄ = 1; BLOCK_M = 64  # a comment with 64\nBLOCK_N: int = (\n    128\n)\n'
    block_m, block_n = tunables(text)

    changed = replace(text, [(block_m, 32), (block_n, 256)])
    assert changed == text.replace("BLOCK_M = 64", "BLOCK_M = 32").replace("    128\n", "    256\n")


def test_a_search_finds_the_best_constants_and_ends():
    start = "NUM_WARPS = 4\nBLOCK = 64\nNUM_STAGES = 2\n"

    def cost(text):
        return abs(value(text, "NUM_WARPS") - 16) + abs(value(text, "BLOCK") - 256) + abs(value(text, "NUM_STAGES") - 4)

    texts, hypotheses = climb(start, lambda text, best: cost(text) < cost(best))

    assert min(map(cost, texts)) == 0
    assert len(texts) == len(set(texts))
    assert hypotheses[0].split(" on ")[0] in ("NUM_WARPS 4 -> 8", "BLOCK 64 -> 128", "NUM_STAGES 2 -> 3")


def test_a_search_goes_further_along_what_was_kept():
    texts, _ = climb("LANES = 1\nBLOCK = 64\n", lambda text, best: value(text, "LANES") > value(best, "LANES"))
    lanes = [value(text, "LANES") for text in texts]
    first = lanes.index(2)
    assert lanes[first : first + 3] == [2, 4, 8]


def test_a_search_leaves_a_slope_that_only_a_pair_of_changes_climbs():
    def better(text, best):
        return (value(text, "A"), value(text, "B")) == (2, 2) and value(best, "A") == 1

    texts, _ = climb("A = 1\nB = 1\n", better)
    assert "A = 2\nB = 2\n" in texts


def test_a_search_is_the_same_for_the_same_seed():
    start = "NUM_WARPS = 4\nBLOCK = 64\nNUM_STAGES = 2\n"
    runs = [climb(start, lambda text, best: False, seed=seed)[0] for seed in (5, 5, 6)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert set(runs[0]) == set(runs[2])


@pytest.mark.parametrize("text", ["x = 1\n", "def broken(:\n", ""])
def test_a_kernel_without_constants_exhausts_the_search_at_once(text):
    with pytest.raises(Exhausted, match="declares no constants"):
        asyncio.run(
            SearchAgent().propose(
                Context(
                    folder=Path(),
                    target=TARGET,
                    description="",
                    signature="",
                    kernel=text,
                    best=Experiment(number=0),
                    experiments=(),
                    judged=frozenset(),
                    comments=(),
                    refused="",
                    source=lambda number: "",
                    diff=lambda number: "",
                    record=lambda number: {},
                )  # fmt: skip
            )
        )


def test_agents_are_made_by_name():
    assert (make("auto").name, make("search").name, make("human").name) == ("search", "search", "human")
    with pytest.raises(UsageError, match="unknown agent"):
        make("replay:")
    with pytest.raises(UsageError, match="no run"):
        make("replay:/nowhere")


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(search).failed == 0
