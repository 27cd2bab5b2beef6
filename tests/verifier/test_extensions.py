"""An extension of an operation: tried on whoever takes its option, asked of whoever is to serve a target with it."""

from __future__ import annotations

import json

import pytest
import torch

from autokernel import starters
from autokernel.evaluator import Evaluator
from autokernel.ops.spec import TimingCase
from autokernel.runner import kernels
from autokernel.verdict import Stage, Status
from autokernel.verifier import sanitize, stages
from tests.evaluating import settings, shared_evaluator
from tests.planting import needs_compiler

pytestmark = needs_compiler

HALVES = {"interleaved": False}
STARTER = starters.source("rotary_embedding", "cpp")


def with_signature(signature, call):
    """The starter under another signature."""
    renamed = STARTER.replace("def kernel_fn(", "def starter(")
    return f"{renamed}\n\ndef kernel_fn{signature}:\n    return starter{call}\n"


NEIGHBOURS_ONLY = with_signature("(x, cos, sin)", "(x, cos, sin)")


@pytest.fixture(scope="module")
def for_halves():
    case = TimingCase(shape={"B": 1, "H": 2, "S": 64, "D": 32}, dtype="float32", options=HALVES)
    with Evaluator("rotary_embedding", device="cpu", timing_cases=[case], settings=settings()) as evaluator:
        yield evaluator


def test_a_kernel_that_takes_the_option_is_tried_on_both_forms_in_every_stage():
    verdict = shared_evaluator("rotary_embedding").verify(STARTER, seed=3)

    assert verdict.accepted, verdict.reason
    assert verdict.skipped == ()
    for stage in verdict.stages:
        extended = [case for case in stage.cases if "interleaved=False" in case.label]
        assert extended, stage.name
        assert len(extended) < len(stage.cases)


SWALLOWED = with_signature("(x, cos, sin, **options)", "(x, cos, sin)")


@pytest.mark.parametrize("source", [NEIGHBOURS_ONLY, SWALLOWED], ids=["without", "by **"])
def test_a_kernel_that_does_not_name_the_option_is_judged_for_the_default_and_the_rest_is_not_tested(source):
    verdict = shared_evaluator("rotary_embedding").verify(source, seed=3)

    assert verdict.accepted, verdict.reason
    (left_out,) = verdict.skipped
    assert (left_out.label, left_out.status) == ("interleaved=False", Status.SKIP)
    assert left_out.reason == "kernel_fn takes no interleaved, and is judged for the default alone"


@pytest.mark.parametrize(
    "source",
    [
        with_signature("(x, cos, sin, interleaved=True)", "(x, cos, sin)"),
        with_signature("(x, cos, sin, interleaved=True)", "(x, cos, sin, False)"),
    ],
    ids=["ignored", "always halves"],
)
def test_a_kernel_that_takes_the_option_and_ignores_it_is_rejected(source):
    verdict = shared_evaluator("rotary_embedding").verify(source, seed=3)

    assert verdict.failed_stage is Stage.SMOKE
    assert "times the bound" in verdict.reason


def test_a_target_that_asks_for_the_form_takes_no_kernel_without_its_option(for_halves):
    verdict = for_halves.verify(NEIGHBOURS_ONLY, seed=3)

    assert not verdict.accepted
    assert "interleaved" in verdict.error


def test_a_target_that_asks_for_the_form_tries_it_on_a_kernel_that_takes_anything(for_halves):
    verdict = for_halves.verify(SWALLOWED, seed=3)

    assert verdict.failed_stage is Stage.SMOKE
    assert "times the bound" in verdict.reason


def test_a_target_that_asks_for_the_form_is_verified_for_both_and_timed_on_it(for_halves):
    evaluation = for_halves.evaluate(STARTER, seed=3)

    assert evaluation.verdict.accepted, evaluation.verdict.reason
    assert evaluation.verdict.skipped == ()
    assert [case.label for case in evaluation.measurement.cases] == ["B=1 H=2 S=64 D=32 float32 interleaved=False"]


def test_which_options_a_kernel_lacks_follows_from_its_signature():
    names = ["interleaved", "other"]

    assert kernels.lacking(lambda x, interleaved=True: x, names) == ["other"]
    assert kernels.lacking(lambda x, **options: x, names) == names
    assert kernels.lacking(lambda interleaved, /, x: x, names) == names


def test_a_tool_that_runs_a_kernel_alone_leaves_out_what_it_does_not_take(tmp_path):
    spec = shared_evaluator("rotary_embedding").spec
    cases = sanitize._cases(spec, "float32")
    assert any(case.options for case in cases)
    file = tmp_path / "candidate.py"
    file.write_text(NEIGHBOURS_ONLY)
    request = {
        **stages.load_request(spec, "candidate", NEIGHBOURS_ONLY),
        "reference": "rotary_embedding",
        "device": "cpu",
        "seed": 1,
        "scratch": str(tmp_path),
        "cases": [{"shape": dict(c.shape), "dtype": c.dtype, "options": dict(c.options)} for c in cases],
    }
    from autokernel.runner import alone

    with torch.no_grad():  # which it sets for the process of its own that it usually is
        alone._run(json.loads(json.dumps(request)))  # raises if it calls what the kernel does not take
