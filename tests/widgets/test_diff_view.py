"""The diff of an experiment, against what a person chooses."""

from __future__ import annotations

import pytest
from autokernel_widgets import DiffView
from autokernel_widgets.markup import text_of

from autokernel.errors import UsageError
from autokernel.runfolder import RunFolder
from tests.recorded_run import HOSTILE, record_run
from tests.widgets.clicking import nodes, press, say


@pytest.fixture
def run(tmp_path):
    return record_run(tmp_path / "run")


def code(view, kind):
    rows = [one for one in nodes(view.tree) if one[1].get("class", "") == f"ak-{kind}" and one[0] == "tr"]
    return [text_of(row) for row in rows]


def test_it_shows_what_git_shows(run):
    view = DiffView(run, 1)
    shown = [
        line for line in RunFolder(run).diff(1).splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]

    assert code(view, "removed") == ["4-LANES = 1  # independent partial sums"]
    assert code(view, "added") == ["4+LANES = 2  # independent partial sums"]
    assert shown == ["-LANES = 1  # independent partial sums", "+LANES = 2  # independent partial sums"]


def test_against_the_starter_and_against_any_other_experiment(run):
    assert "LANES = 1 " in code(DiffView(run, 2, against="starter"), "removed")[0]
    assert "LANES = 8 " in code(DiffView(run, 2, against=3), "removed")[0]


def test_a_person_changes_what_it_is_compared_with(run):
    view = DiffView(run, 2)

    assert press(view, "against", "starter") == (True, "")
    assert "LANES = 1 " in code(view, "removed")[0]


def test_a_person_changes_the_layout(run):
    view = DiffView(run, 2)
    press(view, "layout", "side by side")

    (row,) = [one for one in nodes(view.tree) if one[0] == "tr" and "LANES" in text_of(one)]
    assert [cell[1]["class"] for cell in row[2:]] == [
        "ak-no ak-removed", "ak-line ak-removed", "ak-no ak-added", "ak-line ak-added",
    ]  # fmt: skip


def test_the_starting_kernel_says_that_it_has_no_parent(run):
    assert "has no parent" in text_of(DiffView(run, 0).tree)


def test_equal_kernels_are_said_to_be_equal(run):
    assert "the same, character by character" in text_of(DiffView(run, 2, against=2).tree)


def test_a_hostile_hypothesis_stays_text(run):
    view = DiffView(run, 2)
    shown = view._repr_mimebundle_()[0]["text/html"]

    assert "<script>alert(1)</script>" in text_of(view.tree)
    assert "<script>" in HOSTILE and "<script>" not in shown


@pytest.mark.parametrize("number", [99, -1])
def test_an_experiment_that_is_not_there_is_said_in_the_widget(run, number):
    assert f"has no experiment {number} (it has: 0 to 3)" in text_of(DiffView(run, number).tree)


def test_another_comparison_than_the_three_is_refused(run):
    with pytest.raises(UsageError, match="use 'parent', 'starter' or an experiment's number"):
        DiffView(run, 1, against="best")


def test_a_message_that_no_button_sends_is_answered_and_changes_nothing(run):
    view = DiffView(run, 1)
    before = view.tree

    assert say(view, "delete", "everything") == (False, "this widget knows no action 'delete'")
    assert say(view, "layout", "<b>")[0] is False
    assert view.tree == before
