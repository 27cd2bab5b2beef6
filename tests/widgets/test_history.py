"""The table of a run's experiments."""

from __future__ import annotations

from autokernel_widgets import History
from autokernel_widgets.history import COLUMNS

from tests.recorded_run import HOSTILE, record_run
from tests.widgets.rich_run import add


def column(widget, name):
    return [row[2 + COLUMNS.index(name)] for row in widget.rows]


def test_there_is_a_row_for_every_experiment(tmp_path):
    widget = History(record_run(tmp_path / "run"))

    assert column(widget, "n") == ["0", "1", "2", "3"]
    assert column(widget, "over PyTorch") == ["0.800×", "1.300×", "1.200×", ""]


def test_a_rejected_experiment_says_how_it_failed(tmp_path):
    assert column(History(record_run(tmp_path / "run")), "outcome")[3] == "✕ wrong (FAIL)"


def test_a_decision_by_a_person_is_marked(tmp_path):
    run = record_run(tmp_path / "run")
    add(run, decided_by="person")

    assert column(History(run), "outcome")[-1] == "● kept, by a person"


def test_without_widgets_the_newest_stands_first_and_what_an_agent_wrote_is_text(tmp_path):
    shown = History(record_run(tmp_path / "run"))._repr_mimebundle_()[0]["text/html"]

    assert shown.index("LANES 8 -&gt; 16") < shown.index("LANES 1 -&gt; 8") < shown.index("starter")
    assert "<script>" in HOSTILE and "<script>" not in shown and "\x1b" not in shown


def test_refreshing_without_news_reports_no_change(tmp_path):
    assert History(record_run(tmp_path / "run")).refresh() is False


def test_a_new_experiment_appears(tmp_path):
    run = record_run(tmp_path / "run")
    widget = History(run)
    add(run)

    assert widget.refresh() is True
    assert len(widget.rows) == 5


def test_a_damaged_results_file_is_said_and_the_table_is_whole_all_the_same(tmp_path):
    run = record_run(tmp_path / "run")
    lines = (run / "results.tsv").read_text().splitlines(keepends=True)
    (run / "results.tsv").write_text("".join([*lines[:2], "one\ttwo\tthree\n", *lines[3:]]))
    widget = History(run)

    assert column(widget, "n") == ["0", "1", "2", "3"]
    (note,) = widget.notes
    assert note.startswith("results.tsv, line 3, cannot be read: experiment is 'one', not a number")


def test_a_folder_that_is_no_run_is_said_in_the_widget(tmp_path):
    widget = History(tmp_path)

    assert "is no run" in widget.problem
    assert "is no run" in widget._repr_mimebundle_()[0]["text/html"]
