"""``autokernel lab`` in a real Chromium: the widgets render, obey, survive, and run nothing that an agent wrote.

All browser tests are in this module, so that they share one JupyterLab.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from autokernel import results
from autokernel.runfolder import RunFolder
from tests.browser.conftest import Notebook, opened
from tests.browser.looks import OVERFLOWING, TOO_FAINT
from tests.recorded_run import HOSTILE
from tests.widgets.rich_run import add, rich_run

pytestmark = pytest.mark.browser

IMPORTS = "from autokernel_widgets import *\n"
# A session whose judge goes by what a kernel's text says, so that a loop takes a moment; git and the rest are real.
SESSION = """
from autokernel import Session
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel
session = Session.create("rmsnorm", root={root!r}, name="loop", device="cpu", approval={approval!r}, start=kernel(1.0),
    agent=ScriptedAgent([kernel(1.2), kernel(1.1), kernel(9, wrong=True), kernel(1.5), kernel(1.9), kernel(2.2)]),
    evaluator=ScriptedEvaluator(seconds=0.2))
session.close()
session = Session.open({root!r} + "/loop", approval={approval!r},
    agent=ScriptedAgent([kernel(1.2), kernel(1.1), kernel(9, wrong=True), kernel(1.5), kernel(1.9), kernel(2.2)]),
    evaluator=ScriptedEvaluator(seconds=0.2))
w = Workbench(session)
w
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return rich_run(tmp_path / "run")


def head(run: Path) -> str:
    """The kernel on the branch."""
    show = ["git", "-C", str(run), "show", f"autokernel/{run.name}:kernel.py"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


def points(notebook: Notebook) -> int:
    return notebook.page.locator(".ak-chart").first.locator(".scatterlayer .point").count()


def test_the_quickstart_opens_on_its_question(page: Any, lab: str) -> None:
    opened(page, lab).open("01_quickstart.ipynb")

    heading = page.locator(".jp-RenderedMarkdown h1").first
    heading.wait_for(timeout=60_000)
    assert heading.inner_text().strip("¶ ").endswith("?")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_workbench_is_readable_in_both_themes_and_its_text_runs_nothing(
    notebook: Notebook, run: Path, shots: Path, theme: str
) -> None:
    notebook.theme(theme)
    notebook.show(f"{IMPORTS}Workbench({str(run)!r})")
    notebook.see(".ak-chart .main-svg")
    notebook.see(".ak-card .ak-keep")

    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 2600})
    notebook.wait(lambda: points(notebook) == 5, "not every experiment was drawn")
    assert (
        page.locator(".ak-chart .shapelayer circle, .ak-chart .shapelayer path").count() >= 2
    )  # PyTorch, and the ring
    assert "roofline limit (3.00×)" in page.locator(".ak-chart").first.inner_text()
    assert HOSTILE.partition(" ")[0] in page.locator(".ak-history").inner_text()  # as text
    assert "<script>alert(3)</script>" in page.locator(".ak-trace").inner_text()
    assert page.evaluate(OVERFLOWING) == []
    page.screenshot(path=str(shots / f"workbench-{theme.lower()}.png"))
    assert page.evaluate(TOO_FAINT, ".ak p, .ak td, .ak th, .ak button:enabled, .ak span, .ak label, .ak li") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    notebook.theme("Light")


def test_at_200_percent_zoom_nothing_is_cut_off(notebook: Notebook, run: Path, shots: Path) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 640, "height": 2600})  # what 1280 px leave at 200 %
    notebook.show(f"{IMPORTS}Workbench({str(run)!r})")
    notebook.see(".ak-chart .main-svg")
    notebook.see(".ak-card .ak-keep")
    page.screenshot(path=str(shots / "workbench-zoomed.png"))

    assert page.evaluate(OVERFLOWING) == []
    for button in page.locator(".ak-controls button, .ak-card .ak-waits button").all():
        box = button.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 640, button.inner_text()
    page.set_viewport_size({"width": 1280, "height": 900})


def test_keep_by_its_button_moves_the_branch_and_both_windows_show_it(notebook: Notebook, run: Path) -> None:
    code = f"a, b = EvidenceCard({str(run)!r}), EvidenceCard({str(run)!r})\ndisplay(a, b)"
    notebook.show(IMPORTS + code)
    notebook.wait(lambda: notebook.page.locator(".ak-keep").count() == 2, "no two windows")
    assert "LANES = 16" not in head(run)

    notebook.page.locator(".ak-keep").first.click()
    notebook.wait(lambda: notebook.page.locator(".ak-keep").count() == 0, "a window still offers Keep")

    assert "LANES = 16" in head(run)
    assert results.load(run / "results.tsv")[-1].decision == "keep"
    assert notebook.page.locator(".ak-decided", has_text="Kept by person").count() == 2


def test_the_card_is_worked_by_keyboard(notebook: Notebook, run: Path) -> None:
    notebook.show(f"{IMPORTS}EvidenceCard({str(run)!r})")
    notebook.see(".ak-keep")
    page = notebook.page
    page.locator(".ak-root").focus()

    page.keyboard.press("ArrowLeft")
    notebook.see("h3:has-text('Experiment 3')")
    assert page.locator(".ak-keep").count() == 0  # it failed verification
    page.keyboard.press("k")  # does nothing there
    page.keyboard.press("ArrowRight")
    notebook.see("h3:has-text('Experiment 4')")
    page.keyboard.press("c")
    page.keyboard.type("mark k r")  # in a field the letters are letters
    page.keyboard.press("Escape")
    page.keyboard.press("m")  # would make the cell a Markdown cell if it leaked to JupyterLab
    page.keyboard.press("r")
    notebook.wait(lambda: RunFolder(run).pending is None, "r did not revert")

    assert RunFolder(run).experiment(4).decision == "revert"
    assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCell.model.type") == "code"


def test_an_unsaved_edit_survives_what_happens_around_it_and_is_then_judged(notebook: Notebook, run: Path) -> None:
    notebook.show(f"{IMPORTS}w = EvidenceCard({str(run)!r})\nw")
    page = notebook.page
    notebook.see(".ak-keep")
    page.locator(".ak-root").focus()
    page.keyboard.press("e")
    editor = notebook.see("textarea.ak-editor")
    text = editor.input_value().replace("LANES = 16", "LANES = 64")
    editor.fill(text)

    add(run)  # another process makes an experiment
    notebook.run("w.refresh()", cell=1)
    assert editor.input_value() == text
    notebook.show(f"{IMPORTS}w = EvidenceCard({str(run)!r})\nw")  # even the widget is made anew
    notebook.see(".ak-keep")
    page.locator(".ak-root").focus()
    page.keyboard.press("e")
    assert notebook.see("textarea.ak-editor").input_value() == text

    page.locator("button[data-action='edit']").click()
    notebook.wait(lambda: RunFolder(run).experiments[-1].agent == "person", "the edit was not taken")
    assert RunFolder(run).source(RunFolder(run).experiments[-1].number) == text
    notebook.see(".ak-status:has-text('your kernel is judged next')")


def test_a_click_on_a_point_and_on_a_row_selects_everywhere_and_the_diff_follows(notebook: Notebook, run: Path) -> None:
    notebook.show(f"{IMPORTS}Workbench({str(run)!r})")
    notebook.see(".ak-chart .main-svg")
    page = notebook.page
    notebook.wait(lambda: points(notebook) == 5, "the chart was not drawn")

    page.locator(".ak-history tbody tr[data-number='2']").click()
    notebook.see("h3:has-text('Experiment 2')")
    page.locator(".ak-chart").first.scroll_into_view_if_needed()
    kept = (
        page.locator(".ak-chart").first.locator(".trace.scatter", has=page.locator(".point")).nth(1).locator(".point")
    )
    box = kept.first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    notebook.see("h3:has-text('Experiment 1')")
    notebook.see(".ak-history tr.ak-selected[data-number='1']")
    page.locator(".ak-chart").first.press("End")
    notebook.see("h3:has-text('Experiment 4')")
    page.locator("button[data-value='side by side']").click()
    notebook.see("table.ak-beside .ak-word")


def test_the_history_sorts_and_filters(notebook: Notebook, run: Path) -> None:
    notebook.show(f"{IMPORTS}History({str(run)!r})")
    notebook.see(".ak-history tbody tr")
    page = notebook.page

    def numbers() -> list[str]:
        return [row.get_attribute("data-number") for row in page.locator(".ak-history tbody tr").all()]

    assert numbers() == ["4", "3", "2", "1", "0"]
    page.locator(".ak-sort", has_text="over PyTorch").click()
    assert numbers() == ["4", "1", "2", "0", "3"]  # what has no time stands last
    page.locator(".ak-history input").fill("lanes kept")
    assert numbers() == ["1"]


def test_the_chart_grows_while_the_loop_runs_and_other_cells_run_meanwhile(notebook: Notebook, tmp_path: Path) -> None:
    notebook.show(IMPORTS + SESSION.format(root=str(tmp_path), approval="auto"))
    notebook.see(".ak-controls")
    page = notebook.page
    page.locator("button[data-action='start']").click()
    notebook.wait(lambda: points(notebook) >= 3, "the chart did not grow")
    notebook.run("print(6 * 7)", cell=1)
    assert RunFolder(tmp_path / "loop").status.tally.total < 6, "the loop had ended before the other cell ran"
    notebook.wait(lambda: "the script is over" in page.locator(".ak-controls").inner_text(), "the loop did not end")
    notebook.run("session.close()", cell=1)

    assert RunFolder(tmp_path / "loop").status.tally.total == 6
    notebook.wait(lambda: points(notebook) == 7, "not every experiment was drawn")


def test_in_approve_mode_nothing_advances_without_a_person_over_a_reload_and_a_restart(
    notebook: Notebook, tmp_path: Path
) -> None:
    run = tmp_path / "loop"
    notebook.show(IMPORTS + SESSION.format(root=str(tmp_path), approval="approve"))
    page = notebook.page
    notebook.see(".ak-controls button[data-action='start']").click()
    notebook.see(".ak-card .ak-keep")
    time.sleep(1.5)  # long enough for several experiments
    assert [one.number for one in RunFolder(run).experiments] == [0, 1]
    assert "SPEED = 1.0" in head(run)

    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    notebook.open("empty.ipynb", reset=False)  # the page is loaded anew, the kernel goes on
    notebook.see(".ak-card .ak-keep").click()
    notebook.see("h3:has-text('Experiment 2')")
    assert "SPEED = 1.2" in head(run)
    notebook.see(".ak-card .ak-keep")

    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 60000; }")  # as if a minute went by
    notebook.see(".ak-stale:has-text('does not answer')")
    assert RunFolder(run).pending.number == 2  # and the decision keeps waiting
    notebook.open("empty.ipynb")
    notebook.show(f"{IMPORTS}Workbench({str(run)!r})")
    notebook.see(".ak-card .ak-revert").click()
    notebook.wait(lambda: RunFolder(run).pending is None, "Revert did nothing after a restart")
    assert "SPEED = 1.2" in head(run)
    assert RunFolder(run).experiment(2).decision == "revert"


def test_what_is_wrong_with_a_run_is_a_sentence(notebook: Notebook, run: Path, shots: Path) -> None:
    lines = (run / "results.tsv").read_text().splitlines(keepends=True)
    (run / "results.tsv").write_text("".join([*lines[:2], "torn\n", *lines[3:]]))
    notebook.show(f"{IMPORTS}display(History({str(run)!r}), Workbench('no/run'))")
    notebook.see(".ak-history .ak-problem:has-text('results.tsv, line 3, cannot be read')")
    notebook.see(".ak-problem:has-text('is no run')")

    assert (
        notebook.page.locator(
            ".jp-OutputArea [data-mime-type*='error'], .jp-RenderedText[data-mime-type*='stderr']"
        ).count()
        == 0
    )
    notebook.page.screenshot(path=str(shots / "problems.png"))
