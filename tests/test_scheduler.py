"""The scheduler: what it offers first, when it leaves a target, and when it ends."""

from __future__ import annotations

import doctest

import pytest

from autokernel import scheduler
from autokernel.errors import UsageError
from autokernel.scheduler import SchedulerSettings, Standing, choose, model_speedup, offer

SETTINGS = SchedulerSettings()


def test_the_examples_in_its_docstrings_hold():
    assert doctest.testmod(scheduler).attempted >= 3
    assert doctest.testmod(scheduler).failed == 0


def test_a_small_share_with_a_high_ceiling_comes_before_a_large_one_at_its_floor():
    matmul = Standing(name="matmul", share=0.7, speedup=1.0, ceiling=1.02)
    softmax = Standing(name="softmax", share=0.1, speedup=1.0, ceiling=4.0)

    choice = choose([matmul, softmax], SETTINGS)

    assert choice.name == "softmax"
    assert "7.5 %" in choice.reason


def test_a_target_is_left_at_a_plateau_and_taken_up_again_when_the_other_reaches_one():
    first = Standing(name="first", share=0.4, ceiling=3.0)
    second = Standing(name="second", share=0.3, ceiling=3.0)
    idle = {"first": 0, "second": 0}
    order = []
    for _ in range(12):
        standings = [
            Standing(name=one.name, share=one.share, ceiling=one.ceiling, idle=idle[one.name])
            for one in (first, second)
        ]
        choice = choose(standings, SETTINGS, order[-1] if order else None)
        order.append(choice.name)
        idle[choice.name] += SETTINGS.turn

    assert order[:2] == ["first", "second"]
    assert order.count("first") == pytest.approx(order.count("second"), abs=1)


def test_a_target_is_left_because_another_now_offers_more():
    norm = Standing(name="norm", share=0.3, speedup=2.5, ceiling=3.0, experiments=5)
    softmax = Standing(name="softmax", share=0.2, ceiling=3.0)

    choice = choose([norm, softmax], SETTINGS, "norm")

    assert choice.name == "softmax"
    assert "norm offers 2 %" in choice.reason


def test_a_kernel_that_has_to_catch_up_first_is_discounted_and_costs_the_model_nothing():
    slow = Standing(name="slow", share=0.4, speedup=0.05, ceiling=3.0, experiments=5)
    even = Standing(name="even", share=0.1, speedup=1.0, ceiling=3.0)

    assert choose([slow, even], SETTINGS, "slow").name == "even"
    assert model_speedup([slow, even]) == 1.0


def test_it_ends_when_nobody_offers_enough_and_says_why_for_each():
    standings = [
        Standing(name="norm", share=0.3, speedup=2.99, ceiling=3.0),
        Standing(name="softmax", share=0.2, ceiling=3.0, finished="the agent has nothing more to try"),
    ]

    choice = choose(standings, SETTINGS)

    assert choice.name is None
    assert "norm: 0.033 %" in choice.reason
    assert "softmax: the agent has nothing more to try" in choice.reason


def test_without_a_floor_a_target_never_offers_nothing_at_once():
    assert offer(Standing(name="own", share=0.5, speedup=10.0), SETTINGS) > 0


def test_the_model_speedup_follows_amdahls_law():
    standings = [Standing(name="a", share=0.5, speedup=2.0), Standing(name="b", share=0.25, speedup=4.0)]

    assert model_speedup(standings) == pytest.approx(1 / (0.5 / 2 + 0.25 / 4 + 0.25))


@pytest.mark.parametrize(
    "wrong", [{"turn": 0}, {"patience": 0.0}, {"least_offer": 1.0}, {"least_offer": -0.1}, {"unknown_ceiling": 1.0}]
)
def test_wrong_settings_are_named(wrong):
    (name, value), *_ = wrong.items()
    with pytest.raises(UsageError, match=f"{name} is {value}"):
        SchedulerSettings(**wrong)
