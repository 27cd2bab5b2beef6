"""Each notebook runs from top to bottom on a machine with no GPU and no key, and reads as a notebook should."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.command_line import ROOT, environment

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path):
    return nbformat.read(path, as_version=4)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return request.param


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{number:02d}" for number in range(1, len(NOTEBOOKS) + 1)]


def test_its_title_is_a_question(notebook):
    title = read(notebook).cells[0].source.splitlines()[0]

    assert title.startswith("# ")
    assert title.endswith("?")


def test_no_output_is_committed(notebook):
    cells = [cell for cell in read(notebook).cells if cell.cell_type == "code"]

    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_prose_stands_before_each_code_cell(notebook):
    cells = read(notebook).cells
    bare = [
        second.source
        for first, second in zip(cells, cells[1:], strict=False)
        if first.cell_type == "code" == second.cell_type
    ]

    assert bare == []


def test_cells_are_short(notebook):
    code = [cell.source for cell in read(notebook).cells if cell.cell_type == "code"]
    long = [source for source in code if len(source.splitlines()) > 10 and '"""' not in source]

    assert long == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = tmp_path / "work"
    folder.mkdir()
    book = read(notebook)
    NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()

    results = list(Path(folder).glob("runs/*/results.tsv"))
    assert len(results) == 1
    assert len(results[0].read_text().splitlines()) >= 4
    assert os.listdir(folder) == ["runs"]
