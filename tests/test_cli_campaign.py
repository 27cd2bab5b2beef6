"""``autokernel campaign``: from nothing to a measured campaign, and what is wrong use."""

from __future__ import annotations

import dataclasses
import json

import pytest

from autokernel.results import COLUMNS
from tests.command_line import autokernel
from tests.planting import needs_compiler
from tests.widgets.small_report import small_report


def new(root, *targets):
    options = [word for target in targets for word in ("--target", target)]
    return autokernel("campaign", "new", *options, "--device", "cpu", "--root", root, "--json")


@needs_compiler
@pytest.mark.slow
def test_a_campaign_from_the_command_line(tmp_path):
    created = json.loads(new(tmp_path, "rmsnorm=0.3", "reduce=0.2").stdout)
    ran = autokernel("campaign", "run", "campaign-1", "--experiments", "1", "--root", tmp_path)
    status = json.loads(autokernel("campaign", "status", "campaign-1", "--root", tmp_path, "--json").stdout)
    rows = autokernel("campaign", "results", "campaign-1", "--root", tmp_path).stdout.splitlines()

    assert [target["name"] for target in created["targets"]] == ["rmsnorm-1", "reduce-1"]
    assert created["next"]["name"] == "rmsnorm-1"
    assert ran.returncode == 0, ran.stderr
    assert "-> rmsnorm-1: it offers" in ran.stdout
    assert "stopped: 1 experiments were made" in ran.stdout
    assert [target["experiments"] for target in status["targets"]] == [1, 0]
    assert status["model_speedup"] >= 1
    assert rows[0].split("\t") == list(COLUMNS)
    assert len(rows) == 3


def test_a_speedup_that_nobody_measured_is_not_shown_as_one(tmp_path):
    new(tmp_path, "reduce=0.2")

    rows = autokernel("campaign", "status", "campaign-1", "--root", tmp_path).stdout.splitlines()

    (row,) = (row.split() for row in rows if row.startswith("reduce-1"))
    assert row[:5] == ["reduce-1", "20.0", "%", "not", "yet"]


def test_what_is_doubtful_about_a_profile_is_said_when_a_campaign_is_made_of_it(tmp_path):
    doubt = "passes took from 2.1 to 10.5 ms: the machine is busy"
    profile = dataclasses.replace(small_report(), notes=(doubt,)).save(tmp_path / "profile.json")

    made = autokernel("campaign", "new", "--profile", profile, "--most", 1, "--device", "cpu", "--root", tmp_path)

    assert made.returncode == 0, made.stderr
    assert f"the profile says: {doubt}" in made.stderr


def test_wrong_use_is_one_message(tmp_path):
    unreadable = new(tmp_path, "rmsnorm")
    too_much = new(tmp_path, "rmsnorm=0.8", "softmax=0.4")
    missing = autokernel("campaign", "status", "nothing", "--root", tmp_path)

    assert "write it as OPERATION=SHARE" in unreadable.stderr
    assert "add up to 1.200" in too_much.stderr
    assert "no campaign 'nothing'" in missing.stderr
    assert {unreadable.returncode, too_much.returncode, missing.returncode} == {2}
    assert not list(tmp_path.iterdir())


def test_a_campaign_that_nobody_drives_cannot_be_stopped(tmp_path):
    new(tmp_path, "reduce=0.2")

    stopped = autokernel("campaign", "stop", "campaign-1", "--root", tmp_path)

    assert stopped.returncode == 2
    assert "nobody drives" in stopped.stderr
