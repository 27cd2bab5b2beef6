"""Each notebook runs from top to bottom on a machine with no GPU and no key, and reads well where nothing runs it."""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.command_line import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _load_tool():
    spec = importlib.util.spec_from_file_location("notebooks_execute", ROOT / "notebooks" / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _load_tool()


def read(path):
    return nbformat.read(path, as_version=4)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return request.param


def book(*outputs, source="1"):
    """A notebook of one cell, with outputs as the tool stores them."""
    cell = new_code_cell(source, outputs=list(outputs))
    return tool.tidy(new_notebook(cells=[cell]), Path("/somewhere/work"), draw=lambda html: PIXEL)


def test_each_notebook_has_a_number_of_its_own():
    numbers = [path.stem[:2] for path in NOTEBOOKS]

    assert all(number.isdigit() for number in numbers)
    assert len(set(numbers)) == len(numbers) > 0


def test_its_title_is_a_question(notebook):
    title = read(notebook).cells[0].source.splitlines()[0]

    assert title.startswith("# ")
    assert title.endswith("?")


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


def test_the_outputs_it_carries_are_of_its_code_and_every_page_can_show_them(notebook):
    assert tool.find_problems(read(notebook), notebook.stat().st_size) == []


LONG = ("04_campaign", "05_figures")  # together as long as the other five


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.thorough] if path.stem in LONG else []) for path in NOTEBOOKS],
)
def test_it_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    tool.execute(read(path), folder)

    assert [path.name for path in folder.iterdir() if not path.is_dir()] == [], "files were left outside of folders"
    for results in folder.glob("**/runs/*/results.tsv"):
        assert len(results.read_text().splitlines()) >= 2, f"{results} has no experiment"


def test_a_widget_becomes_a_picture():
    html = {"text/html": "<b>card</b>", "text/plain": "Card()", tool.WIDGET: {"model_id": "1"}}
    stored = book(new_output("display_data", html))

    assert dict(stored.cells[0].outputs[0].data) == {"image/png": base64.b64encode(PIXEL).decode() + "\n"}
    assert tool.find_problems(stored, 1000) == []


def test_paths_addresses_colours_and_stderr_are_left_out():
    text = f"\x1b[31mread\x1b[0m /somewhere/work/runs/a and {ROOT}/docs, <Thing at 0x7f00aa>\n"
    stored = book(new_output("stream", name="stdout", text=text), new_output("stream", name="stderr", text="pid 7\n"))

    assert [output.text for output in stored.cells[0].outputs] == ["read runs/a and docs, <Thing>\n"]


def test_pieces_of_a_stream_are_joined_so_that_their_timing_does_not_show():
    stored = book(*(new_output("stream", name="stdout", text=piece) for piece in ("a", "b\n")))

    assert [output.text for output in stored.cells[0].outputs] == ["ab\n"]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda made: made.cells[0].update(source="2"), "made by other code"),
        (lambda made: made.cells[0].update(execution_count=5), "not executed once each"),
        (lambda made: made.metadata.update(widgets={}), "state of widgets"),
        (lambda made: made.cells[0].outputs[0].update(text="see /home/somebody/x"), "path of the machine"),
        (lambda made: made.cells[0].outputs.append(new_output("error", ename="ValueError")), "ended with"),
        (
            lambda made: made.cells[0].outputs.append(new_output("display_data", {tool.WIDGET: {}})),
            "not every page shows",
        ),
        (
            lambda made: made.cells[0].outputs.append(new_output("display_data", {"text/html": "<script>"})),
            "holds a script",
        ),
    ],
)
def test_what_is_wrong_with_stored_outputs_is_found(spoil, problem):
    made = book(new_output("stream", name="stdout", text="fine\n"))
    assert tool.find_problems(made, 1000) == []

    spoil(made)

    assert problem in "; ".join(tool.find_problems(made, 1000))


def test_a_notebook_that_is_too_large_is_found():
    made = book(new_output("stream", name="stdout", text="fine\n"))

    assert "above" in tool.find_problems(made, tool.MOST_BYTES + 1)[0]


def test_a_notebook_without_outputs_is_left_alone():
    assert tool.find_problems(new_notebook(cells=[new_code_cell("1")]), 1000) == []


def test_a_changed_sentence_leaves_the_outputs_valid():
    made = book(new_output("stream", name="stdout", text="fine\n"))
    made.cells.insert(0, nbformat.v4.new_markdown_cell("More prose."))

    assert tool.find_problems(made, 1000) == []
