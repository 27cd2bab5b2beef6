"""Execute notebooks and store their outputs, so that they read well where nothing runs them.

    python notebooks/execute.py                      # all of notebooks/
    python notebooks/execute.py 01_quickstart.ipynb  # some

A notebook runs from top to bottom in an empty folder.  What is stored is what a page without a kernel can
show: text, tables, and pictures.  A plotly figure or a widget becomes a PNG, drawn by Chromium; no widget
state, no script, no time of execution, no path of the machine and nothing of stderr is kept.  The code that
made the outputs is named by its hash in the notebook's metadata (``autokernel.code``), so that a test sees
when a cell has changed since.

Needs nbclient, Playwright and a Chromium.  Measured figures differ from run to run; all else is reproducible.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat

__all__ = ["code_hash", "execute", "find_problems", "main", "tidy"]

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
MOST_BYTES = 1_500_000
WIDGET, PLOTLY = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"
_SHOWN = ("text/plain", "text/markdown", "text/latex", "image/png", "text/html")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATHS = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users|var/folders|private)/[\w.+-]+")
_WIDTH = 900  # of a picture, in CSS pixels
Draw = Callable[[str], bytes]


def code_hash(book: Any) -> str:
    """The hash of the sources of all code cells, in their order."""
    sources = [cell.source for cell in book.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def execute(book: Any, folder: Path, *, timeout: float = 900.0) -> Any:
    """Run all cells of a notebook in a folder; the notebook is changed in place and returned.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell failed.
    """
    from nbclient import NotebookClient

    environment = dict(os.environ)
    paths = [str(ROOT), str(ROOT / "widgets"), environment.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as state:
        news = {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path), "IPYTHONDIR": state,
            "JUPYTER_RUNTIME_DIR": state, "NO_COLOR": "1", "GIT_CONFIG_GLOBAL": os.devnull,
        }  # fmt: skip
        os.environ.update(news)
        try:
            client = NotebookClient(
                book, timeout=timeout, kernel_name="python3", record_timing=False, store_widget_state=False,
                resources={"metadata": {"path": str(folder)}},
            )  # fmt: skip
            client.execute()
        finally:
            os.environ.clear()
            os.environ.update(environment)
    return book


def tidy(book: Any, folder: Path, draw: Draw) -> Any:
    """Leave of the outputs what a page without a kernel can show; the notebook is changed in place and returned.

    Args:
        book: An executed notebook.
        folder: Where it ran; paths in it become relative.
        draw: Makes a PNG of HTML.
    """
    count = 0
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        shown = [output for output in _joined(cell.outputs) if output.get("name") != "stderr"]
        cell.outputs = [_tidied(output, count, folder, draw) for output in shown]
    book.metadata = nbformat.from_dict(
        {
            "autokernel": {"code": code_hash(book)},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    return book


def find_problems(book: Any, size: int) -> list[str]:
    """What is wrong with the outputs that a notebook carries; none if it carries no output at all.

    Args:
        book: The notebook.
        size: Of its file, in bytes.
    """
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    if not outputs:
        return [] if all(cell.execution_count is None for cell in cells) else ["it was executed, but has no output"]
    problems = []
    if book.metadata.get("autokernel", {}).get("code") != code_hash(book):
        problems.append("its outputs were made by other code than its cells hold; run `make notebooks`")
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        problems.append("its cells were not executed once each, in order")
    if size > MOST_BYTES:
        problems.append(f"it has {size} bytes, above {MOST_BYTES}")
    if "widgets" in book.metadata:
        problems.append("it holds the state of widgets")
    for output in outputs:
        problems += _problems_of(output)
    return problems


def _problems_of(output: Any) -> Iterable[str]:
    if output.output_type == "error":
        yield f"a cell ended with {output.ename}"
    for kind in output.get("data", {}):
        if kind not in _SHOWN:
            yield f"an output is {kind}, which not every page shows"
    for text in _texts(output):
        if _PATHS.search(text):
            yield f"an output names a path of the machine: {_PATHS.findall(text)[0]}"
        if "<script" in text.lower():
            yield "an output holds a script"


def _texts(output: Any) -> list[str]:
    texts = [value for kind, value in output.get("data", {}).items() if kind.startswith("text/")]
    return [*texts, output.get("text", "")]


def _joined(outputs: Sequence[Any]) -> list[Any]:
    """Outputs with neighbouring pieces of one stream joined, however they came in."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if output.output_type == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _tidied(output: Any, count: int, folder: Path, draw: Draw) -> Any:
    if output.output_type == "stream":
        output.text = _plain(output.text, folder)
        return output
    if output.output_type == "error":
        return output
    data = output.data
    if PLOTLY in data:
        picture = _figure(data[PLOTLY])
    elif WIDGET in data and "text/html" in data:
        picture = draw(data["text/html"])
    else:
        picture = None
    if picture is None:
        kept = {kind: value for kind, value in data.items() if kind in _SHOWN}
    else:
        kept = {"image/png": base64.b64encode(picture).decode() + "\n"}
    alone = WIDGET in data and picture is None
    kept.setdefault("text/plain", "") if not kept or alone else None
    output.data = nbformat.from_dict(
        {kind: _plain(value, folder) if kind.startswith("text/") else value for kind, value in kept.items()}
    )
    output.metadata = nbformat.from_dict({})
    if output.output_type == "execute_result":
        output.execution_count = count
    return output


def _plain(text: str, folder: Path) -> str:
    """Text without colours, addresses and paths of this machine."""
    text = _ADDRESS.sub("", _ESCAPE.sub("", text))
    for path, name in ((folder, ""), (folder.resolve(), ""), (ROOT, ""), (Path.home(), "~")):
        text = text.replace(f"{path}/", f"{name}/" if name else "").replace(str(path), name or ".")
    return text


def _figure(figure: Any) -> bytes:
    import plotly.graph_objects as go

    drawn = go.Figure({key: figure[key] for key in ("data", "layout") if key in figure})
    width = drawn.layout.width or _WIDTH
    scale = 2 if width < 500 else 1
    return drawn.to_image("png", width=width, height=drawn.layout.height or 500, scale=scale)


class _Browser:
    """Draws HTML as a browser shows it; started when it is first needed."""

    def __init__(self) -> None:
        self._playwright: Any = None
        self._browser: Any = None

    def draw(self, html: str) -> bytes:
        from autokernel.plots import find_browser

        if self._browser is None:
            from playwright.sync_api import sync_playwright

            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(
                executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"]
            )
        page = self._browser.new_page(viewport={"width": _WIDTH, "height": 200})
        try:
            page.set_content(f'<body style="margin: 6px; font: 13px sans-serif; background: white">{html}</body>')
            return bytes(page.screenshot(full_page=True, type="png"))
        finally:
            page.close()

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._playwright.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the notebooks that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description="Execute notebooks and store their outputs.")
    parser.add_argument("notebooks", nargs="*", help="Names in notebooks/; all when none is given.")
    names = parser.parse_args(arguments).notebooks
    paths = [FOLDER / Path(name).name for name in names] or sorted(FOLDER.glob("*.ipynb"))
    wrong = 0
    for path in paths:
        print(f"{path.name} ...", flush=True)
        browser = _Browser()
        with tempfile.TemporaryDirectory(prefix="notebook-") as place:
            book = execute(nbformat.read(path, as_version=4), Path(place))
            try:
                tidy(book, Path(place), browser.draw)
            finally:
                browser.close()
        text = nbformat.writes(book) + "\n"
        problems = find_problems(book, len(text.encode()))
        print("".join(f"  {problem}\n" for problem in problems), end="")
        wrong += bool(problems)
        if not problems:
            path.write_text(text, encoding="utf-8")
            print(f"  {len(text.encode()) / 1e3:.0f} kB")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
