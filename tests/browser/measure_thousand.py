"""A run of 1,000 experiments: how long until the first paint, and until a new point is there; prints what it measured.

    python -m pytest tests/browser/measure_thousand.py -s

Times depend on the machine and on what else it does, so only that everything appears is asserted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Notebook
from tests.widgets.rich_run import add, long_run

pytestmark = pytest.mark.browser

COUNT = 1000
DRAWN = """(count) => new Promise((resolve) => {
  const look = () => {
    const chart = document.querySelector('.ak-chart');
    const found = chart ? chart.querySelectorAll('.scatterlayer .point, .ak-point').length : 0;
    if (found >= count) return resolve([Date.now(), !chart.querySelector('.ak-point')]);
    requestAnimationFrame(look);
  };
  look();
})"""
ROWS = """(count) => new Promise((resolve) => {
  const look = () => {
    const said = document.querySelector('.ak-history [role=status]');
    if (said && parseInt(said.textContent) >= count) return resolve(Date.now());
    requestAnimationFrame(look);
  };
  look();
})"""
MEMORY = "import psutil, os\nprint('RSS', psutil.Process(os.getpid()).memory_info().rss)"


def work(tools: Any) -> float:
    """CPU seconds of the page's main thread so far; unlike a lag they do not depend on what else the machine does."""
    metrics = tools.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def resident(notebook: Notebook) -> float:
    """The notebook kernel's memory in MB (10^6 bytes)."""
    notebook.run(MEMORY, cell=1)
    text = notebook.page.locator(".jp-OutputArea-output", has_text="RSS").last.inner_text()
    return int(text.split()[-1]) / 1e6


@pytest.mark.parametrize("widget", ["SpeedupChart", "Workbench"])
def test_a_thousand_experiments_are_drawn_and_each_new_one_appears(
    notebook: Notebook, tmp_path: Path, widget: str
) -> None:
    run = long_run(tmp_path / "long", COUNT)
    notebook.show("from autokernel_widgets import *")
    begin = time.time()
    notebook.run(f"w = {widget}({str(run)!r})\nw", cell=0)
    first = notebook.page.evaluate(DRAWN, COUNT)[0] / 1e3 - begin
    notebook.wait(lambda: notebook.page.evaluate(DRAWN, COUNT)[1], "plotly did not take over")
    whole = time.time() - begin
    before = resident(notebook)
    tools = notebook.page.context.new_cdp_session(notebook.page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    lags, busy = [], work(tools)
    for made in range(1, 13):
        begin = time.time()
        add(run)
        written = time.time()
        seen = notebook.page.evaluate(DRAWN, COUNT + made)[0] / 1e3
        if widget == "Workbench":
            seen = max(seen, notebook.page.evaluate(ROWS, COUNT + made) / 1e3)
        lags.append(seen - written)
        time.sleep(max(0.0, 0.5 - (time.time() - begin)))
    busy = (work(tools) - busy) / len(lags)
    grown = resident(notebook) - before
    lags.sort()
    drawn = f"first paint {first:.2f} s, with plotly {whole:.2f} s"
    point = f"a new point after {1e3 * lags[6]:.0f} ms (median), {1e3 * lags[-1]:.0f} ms (the slowest of {len(lags)})"
    cpu = f"{1e3 * busy:.0f} ms of the page's CPU time each"
    print(f"\n{widget}, {COUNT} experiments: {drawn}; {point}, {cpu}; kernel memory {grown:+.1f} MB")
    assert len(lags) == 12
