"""``autokernel lab`` in a real Chromium: the notebooks open, the widgets show a run, its text runs nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.command_line import COMMAND, ROOT, environment
from tests.recorded_run import record_run

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")

TOKEN = "a-token-for-this-test"
CHROMIUM_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
# A notebook whose kernel is not connected yet silently ignores run commands.
READY = """async () => {
  const app = window.jupyterapp; await app.restored;
  const panel = app.shell.currentWidget;
  if (!panel || !panel.sessionContext) return false;
  await panel.context.ready; await panel.revealed; await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session.kernel; await kernel.info;
  return kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded run, a notebook that shows it, and the notebooks that ship."""
    folder = tmp_path_factory.mktemp("lab")
    record_run(folder / "run")
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(file, folder)
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.cells = [
        nbformat.v4.new_code_cell("from autokernel_widgets import History, SpeedupChart\nHistory('run')"),
        nbformat.v4.new_code_cell("SpeedupChart('run')"),
    ]
    nbformat.write(notebook, folder / "show.ipynb")
    return folder


@pytest.fixture(scope="module")
def lab(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that ``autokernel lab`` started."""
    home = tmp_path_factory.mktemp("home")
    port = free_port()
    config = home / "jupyter_server_config.json"
    config.write_text(
        json.dumps(
            {
                "IdentityProvider": {"token": TOKEN},
                "LabApp": {"expose_app_in_browser": True, "extension_manager": "readonly"},
            }
        )
    )
    private = {name: str(home) for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    process = subprocess.Popen(
        [*COMMAND, "lab", str(folder), "--no-browser", "--port", str(port)],
        env={**environment(), **private},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    request = urllib.request.Request(f"{address}/api/status", headers={"Authorization": f"token {TOKEN}"})
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(request, timeout=5).read()
            break
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "JupyterLab did not start"
            time.sleep(0.3)
    yield address
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = next(
        path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))
    )
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, headless=True, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield page
    page.close()


def open_notebook(page: Any, lab: str, name: str) -> None:
    page.goto(f"{lab}/lab/tree/{name}?reset&token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.shell.currentWidget", timeout=90_000)
    deadline = time.monotonic() + 90
    while not page.evaluate(READY):
        assert time.monotonic() < deadline, "the notebook's kernel did not become ready"
        time.sleep(0.2)


def test_the_quickstart_opens_on_its_question(page: Any, lab: str) -> None:
    open_notebook(page, lab, "01_quickstart.ipynb")

    heading = page.locator(".jp-RenderedMarkdown h1").first
    heading.wait_for(timeout=30_000)
    assert heading.inner_text().strip("¶ ").endswith("?")


def test_the_widgets_show_a_run_and_its_text_runs_nothing(page: Any, lab: str, tmp_path: Path) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    open_notebook(page, lab, "show.ipynb")

    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector(".jp-OutputArea .widget-html table", timeout=90_000)
    page.wait_for_selector(".jp-OutputArea .js-plotly-plot .main-svg", timeout=90_000)

    table = page.locator(".widget-html table").inner_text()
    assert "LANES 1 -> 8" in table
    assert "<script>alert(1)</script>" in table  # as text
    assert page.locator(".jp-OutputArea .js-plotly-plot .point").count() >= 3
    assert dialogs == []
    page.screenshot(path=str(tmp_path / "widgets.png"))
