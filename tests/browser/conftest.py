"""One JupyterLab and one Chromium for a module of browser tests, and one notebook kernel for those of the widgets.

The browser's driver keeps an event loop running, so it must end before other modules' tests: hence the scope.
"""

from __future__ import annotations

import dataclasses
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
from tests.conftest import CHROMIUM_NAMES

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
RUN_CELL = """async ([index, code]) => {
  const panel = window.jupyterapp.shell.currentWidget;
  const cells = panel.content.model.sharedModel;
  while (cells.cells.length <= index) cells.addCell({cell_type: 'code'});
  cells.getCell(index).setSource(code);
  panel.content.activeCellIndex = index;
  const cell = panel.content.widgets[index].model;
  cell.executionCount = null;  // a restarted kernel counts from 1 again, so an older count says nothing
  await window.jupyterapp.commands.execute('notebook:run-cell');
  const errors = cell.outputs.toJSON().filter((one) => one.output_type === 'error').map((one) => one.evalue);
  return [cell.executionCount, errors];
}"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def playwright_api() -> Any:
    return pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that JupyterLab shows: the notebooks that ship, and an empty one."""
    folder = tmp_path_factory.mktemp("lab")
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(file, folder)
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.cells = [nbformat.v4.new_code_cell("")]
    nbformat.write(notebook, folder / "empty.ipynb")
    return folder


@pytest.fixture(scope="module")
def lab(lab_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that ``autokernel lab`` started."""
    home = tmp_path_factory.mktemp("home")
    port = free_port()
    lab_app = {"expose_app_in_browser": True, "extension_manager": "readonly"}
    config = {"IdentityProvider": {"token": TOKEN}, "LabApp": lab_app}
    (home / "jupyter_server_config.json").write_text(json.dumps(config))
    settings = home / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    private = {name: str(home) for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    process = subprocess.Popen(
        [*COMMAND, "lab", str(lab_folder), "--no-browser", "--port", str(port)],
        env={**environment(), **private, "IPYTHONDIR": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    request = urllib.request.Request(f"{address}/api/status", headers={"Authorization": f"token {TOKEN}"})
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(request, timeout=5).read()
            break
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "JupyterLab did not start"
            time.sleep(0.3)
    yield address
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)


@pytest.fixture(scope="module")
def browser(playwright_api: Any) -> Iterator[Any]:
    executable = next(path for name in CHROMIUM_NAMES if (path := shutil.which(name)))
    with playwright_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, headless=True, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield page
    page.close()


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are kept: ``AUTOKERNEL_SCREENSHOTS``, or a temporary folder."""
    named = os.environ.get("AUTOKERNEL_SCREENSHOTS")
    folder = Path(named).resolve() if named else tmp_path_factory.mktemp("shots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclasses.dataclass
class Notebook:
    """A notebook that is open in a browser.

    Attributes:
        page: Playwright's page.
        dialogs: What a script said with ``alert`` and the like; always empty, if the widgets are sound.
        errors: Errors of scripts in the page.
    """

    page: Any
    lab: str
    dialogs: list[str] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)

    def open(self, name: str, *, reset: bool = True) -> None:
        """Open a notebook and wait until its kernel takes orders."""
        self.page.goto(f"{self.lab}/lab/tree/{name}?{'reset&' if reset else ''}token={TOKEN}")
        self.page.wait_for_function("() => window.jupyterapp && window.jupyterapp.shell.currentWidget", timeout=120_000)
        self.wait(lambda: self.page.evaluate(READY), "the notebook's kernel did not become ready")

    def run(self, code: str, cell: int = 0) -> None:
        """Run ``code`` as the cell with that index, to its end."""
        count, errors = self.page.evaluate(RUN_CELL, [cell, code])
        assert count is not None, "the cell did not run"
        assert errors == []

    def show(self, code: str) -> None:
        """Run ``code`` in a notebook whose other cells are gone, so that only its widget is there."""
        self.page.evaluate(
            """() => {
              const panel = window.jupyterapp.shell.currentWidget;
              const cells = panel.content.model.sharedModel;
              if (cells.cells.length > 1) cells.deleteCellRange(1, cells.cells.length);
            }"""
        )
        self.run(code)

    def theme(self, name: str) -> None:
        """``Light`` or ``Dark``."""
        light = str(name == "Light").lower()
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", f"JupyterLab {name}"
        )
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached", timeout=60_000)

    def see(self, selector: str) -> Any:
        """The first element of a selector, when it is visible."""
        found = self.page.locator(selector).first
        found.wait_for(timeout=90_000)
        return found

    def wait(self, condition: Any, why: str, seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, why
            time.sleep(0.1)


def opened(page: Any, lab: str) -> Notebook:
    """A notebook in ``page`` that notes dialogs and errors."""
    notebook = Notebook(page, lab)
    page.on("dialog", lambda dialog: (notebook.dialogs.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: notebook.errors.append(str(error)))
    return notebook


@pytest.fixture(scope="module")
def shared(browser: Any, lab: str) -> Iterator[Notebook]:
    """An empty notebook with a kernel, opened once; each test shows its own widgets in it."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    notebook = opened(page, lab)
    notebook.open("empty.ipynb")
    notebook.page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    yield notebook
    page.close()


@pytest.fixture
def notebook(shared: Notebook) -> Iterator[Notebook]:
    """The shared notebook; no test may leave a dialog or an error behind."""
    shared.dialogs.clear()
    shared.errors.clear()
    yield shared
    assert (shared.dialogs, shared.errors) == ([], [])
