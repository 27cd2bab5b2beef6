"""results.tsv: one row per experiment, for people, spreadsheets and scripts.

The first ten columns are those of the AutoKernel script that came before, in its order; ours
follow.  A row is on disk before the loop goes on.  The file may be edited by hand: columns may be
moved or added, and a row that cannot be read is reported with its line number and left alone.
The journal knows every experiment, so a row that was lost is written again.

Units: microseconds, TFLOP/s, MB (10^6 bytes), seconds, percent for ``pct_peak``.  A speedup above
1 means faster.  An empty field means that there is no such figure.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel import files

if TYPE_CHECKING:
    import pandas

__all__ = ["COLUMNS", "CORRECTNESS", "Problem", "ResultsFile", "ResultsTable", "Row", "load", "load_frame", "read"]

COLUMNS = (
    "experiment",
    "tag",
    "kernel_type",
    "throughput_tflops",
    "latency_us",
    "pct_peak",
    "speedup_vs_pytorch",
    "correctness",
    "peak_vram_mb",
    "description",
    "decision",
    "backend",
    "dtype",
    "speedup_vs_best",
    "ci_low",
    "ci_high",
    "speedup_vs_compile",
    "agent",
    "tokens",
    "seconds",
    "commit",
    "timestamp",
    "worker",
)
CORRECTNESS = ("PASS", "FAIL", "TIMEOUT", "CRASH")
_SPACES = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One experiment, one line.

    Attributes:
        experiment: Number; 0 is the baseline.
        tag: The run's name.
        kernel_type: The operation.
        throughput_tflops: Of the candidate, on the first timing case.
        latency_us: Of the candidate, on the first timing case.
        pct_peak: 100 * roofline floor / latency, on the first timing case.
        speedup_vs_pytorch: Over what PyTorch users run today, weighted over the timing cases.
        correctness: PASS, FAIL, TIMEOUT or CRASH.
        peak_vram_mb: Most memory that a call held beyond its inputs.
        description: The hypothesis.
        decision: ``baseline``, ``keep`` or ``revert``.
        backend: ``triton``, ``cuda`` or ``cpp``.
        dtype: Of the timing cases.
        speedup_vs_best: Over the best kernel at that time, paired.
        ci_low: Low end of the 95 % confidence interval of ``speedup_vs_best``.
        ci_high: Its high end.
        speedup_vs_compile: Over ``torch.compile``, when asked for.
        agent: Who proposed it.
        tokens: Language-model tokens that the proposal took.
        seconds: From the proposal to the verdict, without the agent's thinking.
        commit: Abbreviated; the whole kernel is there.
        timestamp: When it was decided, UTC.
        worker: Which worker and device judged it, where there are several.
        extra: Fields of columns that a person added, by column.
    """

    experiment: int
    tag: str = ""
    kernel_type: str = ""
    throughput_tflops: float | None = None
    latency_us: float | None = None
    pct_peak: float | None = None
    speedup_vs_pytorch: float | None = None
    correctness: str = ""
    peak_vram_mb: float | None = None
    description: str = ""
    decision: str = ""
    backend: str = ""
    dtype: str = ""
    speedup_vs_best: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    speedup_vs_compile: float | None = None
    agent: str = ""
    tokens: int | None = None
    seconds: float | None = None
    commit: str = ""
    timestamp: str = ""
    worker: str = ""
    extra: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def fields(self) -> dict[str, str]:
        """The row as text by column; tabs and newlines inside a field have become spaces."""
        values = {column: _text(getattr(self, column)) for column in COLUMNS}
        return {**values, **{column: _text(value) for column, value in self.extra.items()}}


@dataclasses.dataclass(frozen=True)
class Problem:
    """A line of results.tsv that could not be read as a row."""

    line: int
    reason: str
    text: str


@dataclasses.dataclass(frozen=True)
class ResultsTable:
    """What a results.tsv holds: its columns as they stand in the file, its rows, and its wrong lines."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


def read(path: str | Path) -> ResultsTable:
    """Read a results.tsv as it is, repaired or not; a missing file is an empty table."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig", "replace")
    except FileNotFoundError:
        return ResultsTable((), (), ())
    lines = text.split("\n")
    columns = tuple(name.strip() for name in lines[0].rstrip("\r").split("\t"))
    if "experiment" not in columns:
        reason = "the first line is no header: it names no column 'experiment'"
        return ResultsTable((), (), (Problem(1, reason, lines[0]),) if text.strip() else ())
    rows, problems = [], []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            rows.append(_parse(columns, line.rstrip("\r")))
        except ValueError as error:
            problems.append(Problem(number, str(error), line))
    return ResultsTable(columns, tuple(rows), tuple(problems))


def load(path: str | Path) -> list[Row]:
    """The rows of a results.tsv, in the file's order.

    Lines that cannot be read are left out with a warning that gives their numbers; `read` returns
    them.  A missing file gives no rows.
    """
    table = read(path)
    for problem in table.problems:
        warnings.warn(f"{path}, line {problem.line}: {problem.reason}", stacklevel=2)
    return list(table.rows)


def load_frame(path: str | Path) -> pandas.DataFrame:
    """The rows as a `pandas.DataFrame`, one column per column of `COLUMNS` and one per extra column."""
    import pandas

    records: list[dict[str, Any]] = []
    for row in load(path):
        record = {column: getattr(row, column) for column in COLUMNS}
        records.append({**record, **row.extra})
    return pandas.DataFrame.from_records(records, columns=None if records else list(COLUMNS))


class ResultsFile:
    """The writing side; only the process that drives the run has one.

    Args:
        path: The results.tsv.
        aside: Folder for what had to be taken out of the file (a torn line, an unreadable file).
    """

    def __init__(self, path: Path, aside: Path) -> None:
        self.path = path
        self._aside = aside

    def create(self) -> None:
        """Write the header if the file is missing or empty."""
        if read_header(self.path) is None:
            files.write_atomic(self.path, "\t".join(COLUMNS) + "\n")

    def repair(self, expected: Iterable[Row]) -> list[str]:
        """Bring the file in order: header, last line, and the rows of ``expected`` that it lacks.

        Returns:
            What was done or found, a sentence each; empty if the file was in order.

        Raises:
            RunUnwritable: The file cannot be written.
        """
        notes = [note for note in (self._repair_tail(), self._repair_header()) if note]
        table = read(self.path)
        notes += [f"results.tsv, line {problem.line}: {problem.reason}; left as it is" for problem in table.problems]
        present = {row.experiment for row in table.rows}
        missing = [row for row in expected if row.experiment not in present]
        for row in missing:
            self.append(row)
        if missing:
            numbers = ", ".join(str(row.experiment) for row in missing)
            notes.append(f"results.tsv lacked the row of experiment {numbers}; written again from the journal")
        return notes

    def append(self, row: Row) -> None:
        """Write one row and wait until it is on disk.

        Raises:
            RunUnwritable: It could not be written; nothing of it is left in the file.
        """
        self.create()
        columns = read_header(self.path) or COLUMNS
        values = row.fields()
        line = "\t".join(values.get(column, "") for column in columns) + "\n"
        files.append(self.path, line.encode("utf-8", "replace"))

    def _repair_tail(self) -> str:
        torn = files.cut_torn_tail(self.path)
        if not torn:
            return ""
        columns = read_header(self.path)
        if columns is None or _complete(columns, torn.decode("utf-8", "replace")):
            files.append(self.path, torn.rstrip(b"\r") + b"\n")  # an editor that leaves out the last newline
            return ""
        kept = self._keep_aside("torn-row", torn)
        return f"the last line of results.tsv was torn; it was moved to {kept}"

    def _repair_header(self) -> str:
        columns = read_header(self.path)
        if columns is None:
            return ""
        if "experiment" not in columns:
            return self._rebuild_header(columns)
        missing = [column for column in COLUMNS if column not in columns]
        if not missing:
            return ""
        head, _, body = self.path.read_bytes().partition(b"\n")
        bom_free = head.decode("utf-8-sig", "replace").rstrip("\r")
        files.write_atomic(self.path, "\t".join([bom_free, *missing]).encode() + b"\n" + body)
        return f"results.tsv lacked the columns {', '.join(missing)}; they were added behind the others"

    def _rebuild_header(self, first: tuple[str, ...]) -> str:
        data = self.path.read_bytes()
        if len(first) == len(COLUMNS) and first[0].isdigit():
            files.write_atomic(self.path, "\t".join(COLUMNS).encode() + b"\n" + data)
            return "results.tsv had lost its header; it was put back"
        kept = self._keep_aside("results.tsv", data)
        files.write_atomic(self.path, "\t".join(COLUMNS) + "\n")
        return f"results.tsv could not be read (its first line is no header); it was moved to {kept} and written anew"

    def _keep_aside(self, name: str, data: bytes) -> Path:
        self._aside.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in self._aside.iterdir())
        kept = self._aside / f"{number:03d}-{name}"
        files.write_atomic(kept, data)
        return kept


def read_header(path: Path) -> tuple[str, ...] | None:
    """The columns named by the first line, or None if the file is missing or empty."""
    try:
        with open(path, "rb") as file:
            line = file.readline()
    except FileNotFoundError:
        return None
    if not line.strip():
        return None
    return tuple(name.strip() for name in line.decode("utf-8-sig", "replace").rstrip("\r\n").split("\t"))


def _complete(columns: tuple[str, ...], line: str) -> bool:
    fields = line.rstrip("\r").split("\t")
    if len(fields) != len(columns):
        return False
    if columns[-1] == "worker":
        if fields[-1]:
            return False  # nobody can say whether it was longer; the journal writes the row again
        columns, fields = columns[:-1], fields[:-1]
    return columns[-1] != "timestamp" or _TIMESTAMP.match(fields[-1]) is not None


def _parse(columns: tuple[str, ...], line: str) -> Row:
    fields = line.split("\t")
    if len(fields) > len(columns):
        raise ValueError(f"{len(fields)} fields under {len(columns)} columns")
    values: dict[str, Any] = {}
    extra: dict[str, str] = {}
    for column, text in zip(columns, fields, strict=False):
        if column in COLUMNS:
            values[column] = _value(column, text.strip())
        else:
            extra[column] = text
    if values.get("experiment") is None:
        raise ValueError("no experiment number")
    return Row(**values, extra=extra)


def _value(column: str, text: str) -> Any:
    kind = Row.__annotations__[column]
    if kind == "str":
        return text
    if not text:
        return None
    try:
        return int(text) if kind.startswith("int") else float(text.rstrip("%x"))
    except ValueError:
        raise ValueError(f"{column} is {text!r}, not a number") from None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return format(value, ".6g")
    return _SPACES.sub(" ", str(value)).strip()
