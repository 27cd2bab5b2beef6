"""The ranking of a model's targets in a real Chromium: boxes, sliders, the chart, and the campaign that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autokernel.campaign import Campaign
from tests.browser.conftest import Notebook
from tests.browser.looks import NAMELESS, OVERFLOWING, TOO_FAINT
from tests.widgets.small_report import HOSTILE, small_report

pytestmark = pytest.mark.browser


@pytest.fixture
def code(tmp_path: Path) -> str:
    path = small_report().save(tmp_path / "profile.json")
    return (
        "from autokernel_widgets import *\n"
        f"w = AmdahlRanking({str(path)!r}, campaigns={str(tmp_path / 'campaigns')!r}, device='cpu')\nw"
    )


def bars(notebook: Notebook) -> int:
    return notebook.page.locator(".ak-chart .barlayer .point path").count()


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_ranking_is_readable_in_both_themes_and_names_run_nothing(
    notebook: Notebook, code: str, shots: Path, theme: str
) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 1500})
    notebook.theme(theme)
    notebook.show(code)
    notebook.see(".ak-chart .main-svg")
    page.locator("button[data-action='first']").click()
    notebook.see(".ak-predicted:has-text('The model 1.538×')")
    notebook.wait(lambda: bars(notebook) == 9, "not every bar was drawn")

    assert HOSTILE in page.locator(".ak-ranking").inner_text()  # as text
    assert page.evaluate(OVERFLOWING) == []
    page.screenshot(path=str(shots / f"ranking-{theme.lower()}.png"))
    assert page.evaluate(TOO_FAINT, ".ak p, .ak td, .ak th, .ak button:enabled, .ak span, .ak label, .ak li") == []
    assert page.evaluate(NAMELESS, ".ak button, .ak input, .ak select") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    notebook.theme("Light")


def test_a_box_brings_a_slider_and_moving_it_changes_the_prediction(notebook: Notebook, code: str) -> None:
    notebook.show(code)
    page = notebook.page
    notebook.see(".ak-ranking input[aria-label='choose rmsnorm']").check()
    notebook.see(".ak-predicted:has-text('The model 1.111×')")  # twice as fast at first
    handle = notebook.see(".ak-sliders input[type='range']")

    handle.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    notebook.see(".ak-predicted:has-text('The model 1.122×')")  # 2.2 times: 1 / (1 - 0.2 * (1 - 1 / 2.2))
    assert "rmsnorm 2.20×" in page.locator(".ak-plan").inner_text()
    assert page.locator(".ak-sliders output").inner_text() == "2.20×"
    page.locator("button[data-action='floor']").click()
    notebook.wait(lambda: handle.input_value() == "4", "the slider did not go to the floor")
    page.locator(".ak-ranking input[aria-label='choose rmsnorm']").uncheck()
    notebook.wait(lambda: page.locator(".ak-sliders input").count() == 0, "the slider is still there")


def test_keys_pressed_on_a_box_or_a_button_stay_in_the_widget(notebook: Notebook, code: str) -> None:
    notebook.show(code)
    page = notebook.page
    kind = "() => window.jupyterapp.shell.currentWidget.content.activeCell.model.type"
    notebook.see(".ak-ranking input[aria-label='choose softmax']").focus()
    page.keyboard.press("Space")
    notebook.see(".ak-predicted:has-text('The model 1.053×')")
    page.keyboard.press("m")  # would make the cell a Markdown cell, and its output would be gone
    page.locator("button[data-action='first']").focus()
    page.keyboard.press("m")
    page.keyboard.press("Enter")
    notebook.see(".ak-predicted:has-text('The model 1.538×')")

    assert page.evaluate(kind) == "code"


def test_the_chart_describes_the_target_that_is_clicked(notebook: Notebook, code: str) -> None:
    notebook.show(code)
    chart = notebook.see(".ak-chart .main-svg")
    notebook.wait(lambda: bars(notebook) == 9, "not every bar was drawn")
    said = notebook.page.locator(".ak-chart .ak-small").last
    assert "fused_mlp" in said.inner_text()

    chart.scroll_into_view_if_needed()
    box = notebook.page.locator(".ak-chart .barlayer .point path").nth(1).bounding_box()
    notebook.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    notebook.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    notebook.wait(lambda: "rmsnorm" in said.inner_text(), "a click on a bar did not choose its target")
    notebook.page.locator(".ak-chart").press("End")
    notebook.wait(lambda: "strange-op" in said.inner_text(), "the keyboard did not choose the last target")


def test_the_button_makes_a_campaign_and_its_workbench_opens_below(
    notebook: Notebook, code: str, tmp_path: Path, shots: Path
) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 2600})
    notebook.show(code)
    notebook.see("button[data-action='first']").click()
    notebook.see("button[data-action='make']:has-text('Make a campaign of 3 targets')").click()

    notebook.see(".ak-board:has-text('campaign over 3 targets of TwoLayers')")
    notebook.see(".ak-controls")
    page.screenshot(path=str(shots / "ranking-made.png"))
    assert list(Campaign(tmp_path / "campaigns" / "campaign-1").runs) == ["fused_mlp", "rmsnorm", "softmax"]
    page.set_viewport_size({"width": 1280, "height": 900})


def test_at_200_percent_zoom_nothing_is_cut_off(notebook: Notebook, code: str, shots: Path) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 640, "height": 1700})
    notebook.show(code)
    notebook.see(".ak-chart .main-svg")
    page.locator("button[data-action='first']").click()
    notebook.see(".ak-predicted")
    page.screenshot(path=str(shots / "ranking-zoomed.png"))

    assert page.evaluate(OVERFLOWING) == []
    page.set_viewport_size({"width": 1280, "height": 900})


def test_what_is_no_report_is_a_sentence(notebook: Notebook) -> None:
    notebook.show("from autokernel_widgets import *\nAmdahlRanking('no/profile.json')")
    notebook.see(".ak-problem:has-text('cannot read the profile')")

    assert notebook.page.locator(".jp-OutputArea [data-mime-type*='error']").count() == 0
