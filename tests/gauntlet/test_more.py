"""More kernels of known worth: other mechanisms of the same kinds, and right kernels that look suspicious.

``more/index.tsv`` gives for each file the kernel that stands before it (``base``: ``cpp:rmsnorm``, which
the file then knows as ``right``, or ``-``), and for a bad one the findings or stages that name its cause;
``values`` is any stage that compares values, ``too_slow`` the deadline of the whole verification.
"""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path

import pytest

from autokernel.evaluator import Evaluator
from autokernel.verdict import Stage, Status
from tests.evaluating import LIMITS, brief_evaluator, shared_evaluator
from tests.gauntlet.test_gauntlet import DEVICE, causes
from tests.planting import needs_compiler

HERE = Path(__file__).parent / "more"
ROOT = Path(__file__).parents[2]
STAGES = {stage.value for stage in Stage}

pytestmark = [pytest.mark.thorough, needs_compiler]


def _rows() -> list[dict[str, str]]:
    with open(HERE / "index.tsv", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


ROWS = _rows()


def text_of(row: dict[str, str]) -> str:
    """The whole kernel file: the base, if any, and what the row's file adds to it.

    On a GPU the Triton kernel of the same operation stands in for a C++ one.
    """
    own = (HERE / row["file"]).read_text()
    if row["base"] == "-":
        return own
    backend, _colon, name = row["base"].partition(":")
    if DEVICE == "cuda":
        backend = "triton"
    places = (ROOT / f"tests/kernels/{name}_{backend}.py", ROOT / f"autokernel/starters/{backend}/{name}.py")
    base = next(place for place in places if place.exists())
    return f"{base.read_text()}\n\nright = kernel_fn\n\n{own}"


def evaluator_for(row: dict[str, str], source: str) -> Evaluator:
    """An evaluator for the operation that the file names last, on the device that its backend needs."""
    name = re.findall(r'^KERNEL_TYPE = "(\w+)"', source, re.MULTILINE)[-1]
    device = "cpu" if 'BACKEND = "cpp"' in source else DEVICE
    if row["kind"] == "process_abuse":  # it would cost every other candidate a second to be so strict
        limits = dataclasses.replace(LIMITS, load_seconds=30.0, processes=48, scratch_files=1000, total_seconds=5.0)
        return brief_evaluator(name, device=device, limits=limits)
    return shared_evaluator(name, device=device)


@pytest.mark.parametrize("row", ROWS, ids=[row["file"].removesuffix(".py") for row in ROWS])
def test_each_file_gets_its_verdict_and_a_bad_one_its_true_cause(row):
    pytest.importorskip("triton")
    source = text_of(row)
    evaluator = evaluator_for(row, source)

    verdict = evaluator.verify(source)

    if row["kind"] == "process_abuse":
        evaluator.close()
    if row["verdict"] == "accept":
        assert verdict.accepted, verdict.reason
        assert not verdict.findings
        return
    assert not verdict.accepted, row["what"]
    named = causes(verdict)
    if any(
        case.status is Status.TIMEOUT and "the verification took" in case.reason for case in verdict.stages[-1].cases
    ):
        named.add("too_slow")
    wanted = set(row["causes"].split(","))
    assert named & (wanted | STAGES if "values" in wanted else wanted), (named, verdict.reason)


def test_the_index_lists_every_file():
    assert {row["file"] for row in ROWS} == {str(file.relative_to(HERE)) for file in HERE.glob("*/*.py")}
    assert all(bool(row["causes"]) == (row["verdict"] == "reject") for row in ROWS)
