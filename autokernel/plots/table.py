"""The table behind a figure, as LaTeX (booktabs), Markdown or CSV.

A `Ratio` is one cell in LaTeX and Markdown, ``1.86 (1.78 to 1.90)``, and three columns in CSV (value,
low, high).  A ratio whose interval is not known has equal ends and is written without one.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path

from autokernel.errors import UsageError
from autokernel.measurement import Ratio
from autokernel.plaintext import one_line

__all__ = ["TABLE_FORMATS", "Cell", "Table"]

TABLE_FORMATS = (".tex", ".md", ".csv")
Cell = str | int | float | Ratio | None

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "µ": r"\textmu{}", "×": r"$\times$", "…": r"\dots{}",
    "°": r"\textdegree{}", "²": r"\textsuperscript{2}", "³": r"\textsuperscript{3}", "→": r"$\rightarrow$",
    "≤": r"$\leq$", "≥": r"$\geq$",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under headings.

    Attributes:
        columns: The headings, with units.
        rows: Cells by row, as many as there are columns; None is an empty cell.
        note: What a reader must know to read the figures.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def to_markdown(self) -> str:
        """The table in GitHub's Markdown, the note below."""
        lines = ["| " + " | ".join(map(_markdown, self.columns)) + " |"]
        lines.append("|" + "|".join("---:" if self._is_number(at) else "---" for at in range(len(self.columns))) + "|")
        lines += ["| " + " | ".join(_markdown(_text(cell)) for cell in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n" + (f"\n{_markdown(self.note)}\n" if self.note else "")

    def to_latex(self) -> str:
        r"""The table as a ``tabular`` with the rules of booktabs; the document needs ``\usepackage{booktabs}``."""
        align = "".join("r" if self._is_number(at) else "l" for at in range(len(self.columns)))
        body = [" & ".join(_latex(_text(cell)) for cell in row) + r" \\" for row in self.rows]
        lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(map(_latex, self.columns)) + r" \\"]
        lines += [r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
        return "\n".join(lines) + "\n" + (f"% {one_line(self.note, limit=2000)}\n" if self.note else "")

    def to_csv(self) -> str:
        """The table with all digits; a ratio as three columns, its value, low and high end."""
        wide = [any(isinstance(row[at], Ratio) for row in self.rows) for at in range(len(self.columns))]
        heads: list[str] = []
        for name, spread in zip(self.columns, wide, strict=True):
            heads += [name, f"{name} low", f"{name} high"] if spread else [name]
        output = io.StringIO()
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(heads)
        for row in self.rows:
            cells: list[object] = []
            for cell, spread in zip(row, wide, strict=True):
                cells += _spread(cell) if spread else [_plain(cell)]
            writer.writerow(cells)
        return output.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the table in the format that the path's suffix names: ``.tex``, ``.md`` or ``.csv``.

        Raises:
            UsageError: Another suffix, or the folder does not exist.
        """
        path = Path(path)
        write = {".tex": self.to_latex, ".md": self.to_markdown, ".csv": self.to_csv}.get(path.suffix.lower())
        if write is None:
            raise UsageError(f"cannot write a table as {path.name!r}; end the name in {', '.join(TABLE_FORMATS)}")
        if not path.parent.is_dir():
            raise UsageError(f"the folder {str(path.parent)!r} of the table does not exist; create it first")
        path.write_text(write(), encoding="utf-8")
        return path

    def without_empty_columns(self) -> Table:
        """The table without columns that have no cell; the first column stays."""
        held = [at for at in range(len(self.columns)) if at == 0 or any(row[at] not in (None, "") for row in self.rows)]
        rows = tuple(tuple(row[at] for at in held) for row in self.rows)
        return Table(tuple(self.columns[at] for at in held), rows, self.note)

    def _is_number(self, at: int) -> bool:
        cells = [row[at] for row in self.rows if row[at] is not None]
        return bool(cells) and not any(isinstance(cell, str) for cell in cells)


def _text(cell: Cell) -> str:
    if isinstance(cell, Ratio):
        interval = f" ({_text(cell.low)} to {_text(cell.high)})" if cell.high > cell.low else ""
        return _text(cell.value) + interval
    if isinstance(cell, float):
        size = abs(cell)
        return (
            ""
            if math.isnan(cell)
            else f"{cell:.0f}"
            if size >= 100
            else f"{cell:.2f}"
            if size >= 0.1
            else f"{cell:.3g}"
        )
    return "" if cell is None else one_line(cell, limit=2000)


def _plain(cell: Cell) -> object:
    if isinstance(cell, Ratio):
        return cell.value
    return one_line(cell, limit=2000) if isinstance(cell, str) else "" if cell is None else cell


def _spread(cell: Cell) -> Sequence[object]:
    if not isinstance(cell, Ratio):
        return [_plain(cell), "", ""]
    return [cell.value, cell.low, cell.high] if cell.high > cell.low else [cell.value, "", ""]


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)
