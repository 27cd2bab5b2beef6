"""The card: what it shows of an experiment, and what Keep, Revert, Edit and Comment do to a real run."""

from __future__ import annotations

import dataclasses
import json
import subprocess

import pytest
from autokernel_widgets import EvidenceCard
from autokernel_widgets.markup import text_of

from autokernel import results
from autokernel.experiment import State
from autokernel.files import RunLock
from autokernel.journal import Journal
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from autokernel.verdict import Stage
from tests.recorded_run import record_run
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel
from tests.widgets.clicking import find, press, say
from tests.widgets.rich_run import HOSTILE_FINDING, REASON, rich_run, write


@pytest.fixture
def run(tmp_path):
    return rich_run(tmp_path / "run")


def head(run):
    """The kernel on the branch."""
    show = ["git", "-C", str(run), "show", "autokernel/run:kernel.py"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


def shown(card):
    return text_of(card.tree)


# What it shows


def test_it_shows_the_five_stages_and_those_that_were_not_reached(run):
    accepted, rejected = shown(EvidenceCard(run, 4)), shown(EvidenceCard(run, 3))

    assert all(f"{stage.value} passed: 1 passed, 1 not tested" in accepted for stage in Stage)
    assert "stability: not reached" in rejected and "edge: not reached" in rejected


def test_what_was_not_tested_is_never_counted_as_passed(run):
    assert "2 passed" not in shown(EvidenceCard(run, 4))
    assert "the device has no bfloat16" in shown(EvidenceCard(run, 4))


def test_a_failing_stage_is_open_and_explains_itself_and_a_passing_one_is_closed(run):
    card = EvidenceCard(run, 3)
    (failed,) = find(card, data_id="stage-3-sweep")
    (passed,) = find(card, data_id="stage-3-smoke")

    assert "open" in failed[1] and REASON in text_of(failed)
    assert "open" not in passed[1]


def test_findings_are_shown_as_text(run):
    card = EvidenceCard(run, 3)

    assert f"library_call: {HOSTILE_FINDING}" in shown(card)
    assert HOSTILE_FINDING not in card._repr_mimebundle_()[0]["text/html"]


def test_it_shows_the_times_of_all_contestants_and_how_many_samples_lie_beyond_the_axis(run):
    text = shown(EvidenceCard(run, 4))

    assert "Latency on M=64 N=128 float32: this kernel 200 µs; the best before 250 µs; PyTorch 300 µs" in text
    assert text.count("+1 beyond") == 3
    assert "1.250× (1.225 to 1.275)" in text


def test_it_shows_the_roofline_before_and_after(run):
    (table,) = find(EvidenceCard(run, 4), class_="ak-roofline")

    assert "100" in text_of(table) and "50 %" in text_of(table) and "40 %" in text_of(table)


def test_it_shows_what_the_agent_was_told(run):
    assert "What the agent was toldtry more lanes" in shown(EvidenceCard(run, 4))


def test_without_a_number_it_shows_the_one_that_waits_and_goes_along_with_the_run(run):
    card = EvidenceCard(run)
    assert card.selected == 4

    waiting = RunFolder(run).pending
    journal = Journal(run / ".autokernel" / "journal.jsonl")
    journal.write("decided", experiment=dataclasses.replace(waiting, state=State.DECIDED, decision="keep"))
    journal.write("judged", experiment=dataclasses.replace(waiting, number=5))
    card.refresh()

    assert card.selected == 5


def test_a_person_who_goes_back_stays_there(run):
    card = EvidenceCard(run)
    press(card, "go", "3")
    waiting = RunFolder(run).pending
    Journal(run / ".autokernel" / "journal.jsonl").write("judged", experiment=dataclasses.replace(waiting, number=5))
    card.refresh()

    assert card.selected == 3
    press(card, "go", "newest")
    assert card.selected == 4  # the first that waits


def test_a_person_who_writes_is_not_interrupted_by_the_next_experiment(run):
    card = EvidenceCard(run)
    card._handle_custom_msg({"action": "writing", "id": "w"}, [])
    waiting = RunFolder(run).pending
    Journal(run / ".autokernel" / "journal.jsonl").write(
        "decided", experiment=dataclasses.replace(waiting, state=State.DECIDED, decision="keep")
    )
    Journal(run / ".autokernel" / "journal.jsonl").write("judged", experiment=dataclasses.replace(waiting, number=5))
    card.refresh()

    assert card.selected == 4


def test_the_keys_are_those_of_the_documentation(run):
    keys = {
        one[1]["data-key"] for key in ("k", "r", "e", "c", "ArrowLeft") for one in find(EvidenceCard(run), data_key=key)
    }

    assert keys == {"k", "r", "e", "c", "ArrowLeft"}


def test_the_keep_button_names_what_is_kept(run):
    (button,) = find(EvidenceCard(run), data_action="keep")
    commit = RunFolder(run).pending.commit

    assert text_of(button) == f"Keep experiment 4 ({commit[:7]}, 1.500×) (k)"


# What it refuses


def test_what_failed_verification_has_no_keep_and_is_refused_when_asked_all_the_same(run):
    waiting = RunFolder(run).pending
    Journal(run / ".autokernel" / "journal.jsonl").write(
        "judged", experiment=dataclasses.replace(waiting, correctness="FAIL", speedups={})
    )
    card = EvidenceCard(run)
    before = head(run)

    assert find(card, data_action="keep") == [] and find(card, data_action="revert") != []
    accepted, said = say(card, "keep", f"4 {waiting.commit}")
    assert (accepted, said) == (False, "experiment 4 failed verification and cannot be kept")
    assert head(run) == before


@pytest.mark.parametrize(
    "value", ["3 x", "99 x", "", "4", "4 0000000000000000000000000000000000000000", "-1 x", "4.0 x"]
)
def test_a_decision_about_anything_but_what_was_seen_is_refused(run, value):
    before = head(run)

    assert say(EvidenceCard(run), "keep", value)[0] is False
    assert (head(run), RunFolder(run).pending.number) == (before, 4)


def test_an_experiment_that_does_not_wait_offers_no_decision(run):
    assert find(EvidenceCard(run, 2), data_action="keep") == find(EvidenceCard(run, 2), data_action="revert") == []


def test_a_second_decision_is_refused_and_says_who_made_the_first(run):
    first, second = EvidenceCard(run), EvidenceCard(run)
    press(first, "keep")

    accepted, said = press(second, "revert")
    assert (accepted, said) == (False, "experiment 4 is decided already: keep, by person")


# What it does


def test_keep_moves_the_branch_and_writes_the_row(run):
    accepted, said = press(EvidenceCard(run), "keep")
    row = results.load(run / "results.tsv")[-1]

    assert accepted and said.startswith("experiment 4: keep; done")
    assert "LANES = 16" in head(run) and "LANES = 16" in (run / "kernel.py").read_text()
    assert (row.experiment, row.decision) == (4, "keep")
    assert RunFolder(run).experiment(4).decided_by == "person"


def test_revert_leaves_the_branch_and_writes_the_row(run):
    assert press(EvidenceCard(run), "revert")[0]
    row = results.load(run / "results.tsv")[-1]

    assert "LANES = 2 " in head(run)
    assert (row.experiment, row.decision) == (4, "revert")


def test_the_card_shows_the_decision_at_once(run):
    card = EvidenceCard(run)
    press(card, "keep")

    assert "Kept by person" in shown(card) and find(card, data_action="keep") == []


def test_when_another_process_drives_the_run_the_decision_is_sent_to_it(run):
    lock = RunLock(run / ".autokernel" / "lock")
    try:
        accepted, said = press(EvidenceCard(run), "keep")
    finally:
        lock.release()
    (command,) = RunFolder(run).waiting_commands

    assert accepted and "told this notebook" in said  # it is this process that holds the lock
    assert (command.kind, command.data["experiment"], command.data["by"]) == ("keep", 4, "person")
    assert RunFolder(run).pending.number == 4


def test_an_edit_is_judged_next_in_place_of_the_one_that_waits_and_is_recorded_as_the_persons(run):
    text = RunFolder(run).source(4).replace("16", "32")
    accepted, _ = press(EvidenceCard(run), "edit", source=text, hypothesis="twice as many lanes")
    edited, replaced = RunFolder(run).experiment(5), RunFolder(run).experiment(4)

    assert accepted
    assert (edited.agent, edited.hypothesis, edited.state) == ("person", "twice as many lanes", State.PROPOSED)
    assert RunFolder(run).source(5) == text
    assert (replaced.decision, replaced.decided_by) == ("revert", "person")


@pytest.mark.parametrize(("text", "why"), [("", "is empty"), (" \n", "is empty"), (None, "nothing was changed")])
def test_an_edit_that_is_none_is_refused(run, text, why):
    accepted, said = press(EvidenceCard(run), "edit", source=RunFolder(run).source(4) if text is None else text)

    assert not accepted and why in said
    assert RunFolder(run).pending.number == 4


def test_a_comment_waits_for_the_agent(run):
    assert press(EvidenceCard(run), "comment", comment="  try 32 lanes\n") == (
        True, "your comment goes to the agent's next proposal; nobody drives the run, so it waits for the next Start",
    )  # fmt: skip
    assert [command.data["text"] for command in RunFolder(run).waiting_commands] == ["try 32 lanes"]


def test_an_empty_comment_is_refused(run):
    assert press(EvidenceCard(run), "comment", comment=" ")[0] is False


async def test_the_whole_of_it_with_a_session_in_this_process(tmp_path):
    agent = ScriptedAgent([kernel(1.5), kernel(1.2)])
    session = Session.create("rmsnorm", root=tmp_path, name="run", device="cpu", agent=agent, start=kernel(1.0))
    session.close()
    with Session.open(tmp_path / "run", agent=agent, approval="approve", evaluator=ScriptedEvaluator()) as session:
        await session.step()
        await session.step()
        card = EvidenceCard(session)
        assert press(card, "comment", comment="go easy")[0]
        assert press(card, "keep") == (True, "experiment 1: keep; done")
        await session.step()

        assert "SPEED = 1.5" in head(tmp_path / "run")
        assert agent.contexts[-1].comments == ("go easy",)
        assert "What the agent was toldgo easy" in shown(EvidenceCard(session, 2))


# What can be wrong with a run


def test_a_folder_that_is_no_run_is_said_in_the_widget(tmp_path):
    assert "is no run: it has no target.toml" in shown(EvidenceCard(tmp_path))


def test_a_run_that_appears_later_is_shown_then(tmp_path):
    card = EvidenceCard(tmp_path / "run")
    record_run(tmp_path / "run")

    assert card.refresh() is True
    assert "Experiment 3" in shown(card)


def test_a_record_of_a_newer_version_says_so(run):
    write(run, 4, format=2)

    assert "has format 2" in shown(EvidenceCard(run)) and "newer version" in shown(EvidenceCard(run))


def test_a_journal_of_a_newer_version_says_so(run):
    entry = {**RunFolder(run).experiment(4).to_dict(), "state": "scheduled"}
    with (run / ".autokernel" / "journal.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "judged", "number": 4, "experiment": entry}) + "\n")
    card = EvidenceCard(run)

    assert "cannot be read by AutoKernel" in shown(card)
    assert card.refresh() is False and "cannot be read" in shown(card)  # and it stays said


def test_a_record_that_is_cut_off_leaves_what_the_journal_knows(run):
    (run / ".autokernel" / "experiments" / "4.json").write_text('{"verdict": {')

    assert "LANES 8 -> 32" in shown(EvidenceCard(run)) and "not judged yet" in shown(EvidenceCard(run))


def test_a_record_with_a_strange_verdict_is_said_to_be_unreadable(run):
    write(run, 4, verdict={"stages": 3})

    assert "the record of experiment 4" in shown(EvidenceCard(run)) and "cannot be read" in shown(EvidenceCard(run))


def test_a_run_without_its_repository_says_what_is_missing(run):
    (run / ".git").rename(run / "git")

    assert "no git repository" in shown(EvidenceCard(run))


def test_without_widgets_it_is_the_same_evidence_without_buttons(run):
    static = EvidenceCard(run)._repr_mimebundle_()[0]["text/html"]

    assert "<svg" in static and "LANES" in static and "1.250×" in static
    assert "<button" not in static and "<textarea" not in static
