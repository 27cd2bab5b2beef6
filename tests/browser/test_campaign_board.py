"""The board of a campaign in a real Chromium: it follows, its buttons drive, a click on a target shows its run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autokernel.campaign import Campaign
from tests.browser.conftest import Notebook
from tests.browser.looks import NAMELESS, OVERFLOWING, TOO_FAINT
from tests.command_line import ROOT, environment
from tests.widgets.scripted_campaign import scripted_campaign

pytestmark = pytest.mark.browser

TEXTS = ("p", "td", "th", "button:enabled", "span", "label", "li")
OPEN = """
from autokernel import Campaign
from autokernel_widgets import *
from tests.widgets.scripted_campaign import judges
w = {widget}(Campaign({path!r}, **judges(seconds=0.2)), place="notebook")
w
"""
# A process of its own: the browser's driver keeps an event loop running in this one.
ELSEWHERE = """
import asyncio
from autokernel import Campaign
from tests.widgets.scripted_campaign import judges
asyncio.run(Campaign({path!r}, **judges()).run(experiments=6))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return scripted_campaign(tmp_path).path


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign after six experiments; tests only look at it."""
    campaign = scripted_campaign(tmp_path_factory.mktemp("worked"))
    code = ELSEWHERE.format(path=str(campaign.path))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment())
    return campaign.path


def points(notebook: Notebook) -> int:
    return notebook.page.locator(".ak-chart").first.locator(".scatterlayer .point").count()


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_workbench_of_a_campaign_is_readable_in_both_themes(
    notebook: Notebook, worked: Path, shots: Path, theme: str
) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 2200})
    notebook.theme(theme)
    notebook.show(OPEN.format(widget="Workbench", path=str(worked)))
    notebook.see(".ak-board .ak-predicted:has-text('The model 1.333×')")
    notebook.see(".ak-chart .main-svg")
    notebook.see(".ak-card h3")
    page.locator(".ak-board summary").click()

    assert page.evaluate(OVERFLOWING) == []
    page.screenshot(path=str(shots / f"board-{theme.lower()}.png"))
    assert page.evaluate(TOO_FAINT, ", ".join(f".ak-board {tag}" for tag in TEXTS)) == []
    assert page.evaluate(NAMELESS, ".ak-board button, .ak-board input, .ak-board select") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    notebook.theme("Light")


def test_a_campaign_is_started_paused_and_stopped_and_the_board_grows_while_another_cell_runs(
    notebook: Notebook, path: Path, shots: Path
) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 1400})
    notebook.show(OPEN.format(widget="CampaignBoard", path=str(path)))
    notebook.see(".ak-board button[data-action='start']").click()
    notebook.see(".ak-board tr.ak-now")
    notebook.wait(lambda: points(notebook) >= 2, "the chart of the target did not grow")
    notebook.run("print(6 * 7)", cell=1)

    page.locator(".ak-board button[data-action='pause']").click()
    notebook.see(".ak-board .ak-state:has-text('paused')")
    page.screenshot(path=str(shots / "board-running.png"))
    notebook.see(".ak-board button[data-action='resume']").click()
    notebook.see(".ak-board .ak-state:has-text('running')")
    page.locator(".ak-board button[data-action='stop']").click()
    notebook.see(".ak-board .ak-state:has-text('idle')")
    assert Campaign(path).driver is None
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_campaign_in_another_process_is_followed_over_a_reload_and_can_be_stopped(
    notebook: Notebook, tmp_path: Path
) -> None:
    path = scripted_campaign(tmp_path, approval="approve").path  # it waits for a person until it is stopped
    code = ELSEWHERE.format(path=str(path))
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment())
    try:
        notebook.show(f"from autokernel_widgets import *\nCampaignBoard({str(path)!r})")
        notebook.see(f".ak-board p:has-text('driven by process {process.pid}')")
        assert notebook.page.locator(".ak-board button[data-action='start']").is_disabled()
        notebook.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        notebook.open("empty.ipynb", reset=False)  # the page is loaded anew, the kernel goes on
        notebook.see(".ak-board .ak-state:has-text('waits for you')")
        notebook.see(".ak-board button[data-action='stop']").click()
        assert process.wait(120) == 0
        notebook.see(".ak-board .ak-state:has-text('idle')")
        notebook.see(".ak-board p:has-text('it ended:')")
    finally:
        process.kill()


def test_a_click_on_a_target_shows_its_run_below(notebook: Notebook, worked: Path) -> None:
    notebook.show(OPEN.format(widget="CampaignBoard", path=str(worked)))
    page = notebook.page
    notebook.see(".ak-history tbody tr")
    before = page.locator(".ak-history tbody").inner_text()
    other = page.locator(".ak-board button[data-action='choose'][aria-pressed='false']")
    name = other.inner_text()

    other.click()
    notebook.see(f".ak-board button[aria-pressed='true']:has-text('{name}')")
    notebook.wait(
        lambda: (
            page.locator(".ak-history tbody").count() == 1
            and page.locator(".ak-history tbody").inner_text() not in ("", before)
        ),
        "the other run was not shown",
    )
    rows = {run: len(folder.experiments) for run, folder in Campaign(worked).runs.items()}
    assert page.locator(".ak-history tbody tr").count() == rows[name]
    notebook.wait(lambda: points(notebook) == rows[name], "its chart was not drawn")


def test_at_200_percent_zoom_nothing_is_cut_off_and_what_is_no_campaign_is_a_sentence(
    notebook: Notebook, worked: Path, shots: Path
) -> None:
    page = notebook.page
    page.set_viewport_size({"width": 640, "height": 1700})
    notebook.show(
        f"from autokernel_widgets import *\ndisplay(CampaignBoard({str(worked)!r}), CampaignBoard('no/where'))"
    )
    notebook.see(".ak-chart .main-svg")
    notebook.see(".ak-problem:has-text('is no campaign')")
    page.screenshot(path=str(shots / "board-zoomed.png"))

    assert page.evaluate(OVERFLOWING) == []
    for button in page.locator(".ak-board .ak-row button").all():
        box = button.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 640, button.inner_text()
    page.set_viewport_size({"width": 1280, "height": 900})
