from __future__ import annotations

import dataclasses

import pytest

from autokernel.errors import RunDamaged, UsageError
from autokernel.experiment import Experiment, State
from autokernel.measurement import Ratio
from autokernel.policy import PolicySettings, decide, next_move
from autokernel.target import Target, Timing
from autokernel.verdict import CaseResult, Stage, StageResult, Status
from tests.scripted import Evaluation, measurement_of, verdict_of

ACCEPTED = verdict_of(accepted=True)


def evaluation(first, second=None, verdict=ACCEPTED):
    return Evaluation(verdict, first, second)


def faster(by: float = 1.05, **fields):
    return measurement_of(100.0, 100.0 * by, **fields)


def test_a_gain_that_is_certain_twice_is_kept():
    decision = decide(evaluation(faster(), faster()), PolicySettings())

    assert decision.kind == "keep"
    assert decision.reason == "1.050 (1.048 to 1.052) times as fast as the best so far, confirmed on fresh inputs"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (faster(1.05), None, "no confirmation"),
        (faster(1.05), faster(1.005), "in the confirmation"),
        (faster(1.011), faster(1.05), "not certainly faster than the best: 1.011 (1.009 to 1.013) in the measurement"),
        (faster(0.9), None, "slower than the best"),
        (faster(1.05, throttled=True), faster(), "clocks fell during the measurement"),
        (faster(1.05), faster(throttled=True), "clocks fell during the confirmation"),
        (faster(worst_case=("M=1", Ratio(0.9, 0.8, 0.98))), faster(), "slower on one timing case, M=1"),
        (None, None, "not measured"),
        (measurement_of(100.0), None, "no comparison"),
    ],
)
def test_what_is_not_certainly_faster_is_reverted_with_the_reason(first, second, reason):
    decision = decide(evaluation(first, second), PolicySettings())

    assert decision.kind == "revert"
    assert reason in decision.reason


def test_a_worst_case_that_is_slower_within_noise_is_no_objection():
    measurement = faster(worst_case=("M=1", Ratio(0.98, 0.95, 0.995)))
    assert decide(evaluation(measurement, measurement), PolicySettings()).kind == "keep"


def test_a_kernel_for_which_callers_wait_longer_is_reverted_where_launches_count():
    measurement = faster()
    (case,) = measurement.cases
    slow = dataclasses.replace(case.contestants["candidate"], call_us=130.0)
    contestants = {**case.contestants, "candidate": slow}
    on_gpu = dataclasses.replace(
        measurement, cases=(dataclasses.replace(case, method="graph", contestants=contestants),)
    )

    decision = decide(evaluation(on_gpu, faster()), PolicySettings())
    assert (decision.kind, "a caller waits longer" in decision.reason) == ("revert", True)


def test_nothing_that_failed_verification_is_kept_however_fast():
    wrong = evaluation(faster(9), faster(9), verdict_of(accepted=False))
    assert decide(wrong, PolicySettings(threshold=0.0)).reason.startswith("failed verification: smoke")
    assert decide(wrong, PolicySettings(), first=True).kind == "revert"


def test_a_policy_may_refuse_what_could_not_be_tested():
    skipped = CaseResult(label="M=4 bfloat16", status=Status.SKIP, reason="no bf16 here")
    stage = StageResult(name=Stage.SWEEP, status=Status.PASS, cases=(skipped,))
    verdict = dataclasses.replace(ACCEPTED, stages=(*ACCEPTED.stages, stage))

    assert decide(evaluation(faster(), faster(), verdict), PolicySettings()).kind == "keep"
    decision = decide(evaluation(faster(), faster(), verdict), PolicySettings(refuse_untested=True))
    assert decision.kind == "revert"
    assert "no bf16 here" in decision.reason


def past(*decisions: str, fraction: float = 0.2) -> list[Experiment]:
    return [
        Experiment(number=n, state=State.DECIDED, decision=word, correctness="PASS", fraction_of_peak=fraction)
        for n, word in enumerate(("baseline", *decisions))
    ]


def test_a_run_goes_on_until_a_limit_is_reached():
    settings = PolicySettings(plateau=3, experiments=6, minutes=10)

    assert next_move(past("revert", "revert"), settings, made=2).kind == "continue"
    assert "no gain" in next_move(past("keep", "revert", "revert", "revert"), settings, made=4).reason
    assert "6 experiments" in next_move(past(*["keep"] * 6), settings, made=6).reason
    assert "10 minutes" in next_move(past(), settings, minutes=10.0).reason
    assert "96 %" in next_move(past("keep", fraction=0.96), settings, made=1).reason


def test_a_run_that_ended_at_a_plateau_can_be_taken_up_again():
    assert next_move(past(*["revert"] * 9), PolicySettings(plateau=3), made=0).kind == "continue"


@pytest.mark.parametrize("setting", [{"threshold": -0.1}, {"threshold": 1.5}, {"plateau": 0}, {"minutes": -1}])
def test_settings_that_make_no_sense_are_refused(setting):
    with pytest.raises(UsageError, match=f"policy setting {next(iter(setting))}"):
        PolicySettings(**setting)


TARGET = Target(
    reference="/a b/my \"op\".py:x", operation="x", tag="x-1", backend="cpp", device="cpu", dtype="float32",
    timing=(
        Timing(shape={"M": 4, "N": 5}, options={"causal": True, "eps": 1e-6}, weight=0.3),
        Timing(shape={"M": 1}, layout="transposed:1", model_us=12.5),
    ),
    policy=PolicySettings(plateau=None, minutes=5.0),
)  # fmt: skip


def test_a_target_is_read_back_from_its_toml():
    assert Target.from_toml(TARGET.to_toml()) == TARGET


@pytest.mark.parametrize(
    "change",
    [("dtype", "dtyp"), ("threshold = 0.01", "threshold = 5"), ("[policy]", "[policy"), ("[[timing]]", "[[t]]")],
)
def test_a_target_that_cannot_be_read_is_said_to_be_so(change):
    with pytest.raises(RunDamaged, match=r"target\.toml cannot be read"):
        Target.from_toml(TARGET.to_toml().replace(*change))
