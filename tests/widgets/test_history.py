"""The table of a run's experiments."""

from __future__ import annotations

from autokernel_widgets import History

from tests.recorded_run import HOSTILE, record_run


def test_the_newest_experiment_stands_first(tmp_path):
    value = History(record_run(tmp_path / "run")).value

    assert value.index("LANES 8 -&gt; 16") < value.index("LANES 1 -&gt; 8") < value.index("starter")


def test_what_an_agent_wrote_is_shown_as_text(tmp_path):
    value = History(record_run(tmp_path / "run")).value

    assert "<script>" in HOSTILE
    assert "<script>" not in value
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in value
    assert "\x1b" not in value


def test_a_rejected_experiment_says_how_it_failed(tmp_path):
    assert "revert (FAIL)" in History(record_run(tmp_path / "run")).value


def test_refreshing_without_news_reports_no_change(tmp_path):
    assert History(record_run(tmp_path / "run")).refresh() is False
