"""The experiments of a run as a table that can be sorted, filtered and walked through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets

from autokernel import results
from autokernel.experiment import Experiment
from autokernel.plaintext import one_line
from autokernel_widgets.following import Follower, RunSource, Unreadable
from autokernel_widgets.markup import Node, node
from autokernel_widgets.outcomes import interval, microseconds, outcome_of, times
from autokernel_widgets.panel import STYLE, message, script, static_html, with_html

__all__ = ["COLUMNS", "History"]

COLUMNS = ("n", "outcome", "over PyTorch", "95 % interval", "over the best", "µs", "agent", "hypothesis")
_NUMERIC = {"n", "over PyTorch", "95 % interval", "over the best", "µs"}
_MOST_STATIC = 200


class History(Follower, anywidget.AnyWidget):
    """One row per experiment, the newest first.

    A click on a heading sorts, the field above filters (``LANES``, ``kept``), and a click on a row or
    the arrow keys select an experiment.  Everything that an agent wrote is shown as text and never runs.

    Args:
        run: A run folder, its path, or the session that drives it in this process.  If it cannot be
            read, the widget says why.
        selected: The experiment that is marked; -1 for none.
        live: Follow the run by itself.

    Attributes:
        rows: One list per experiment: number, key of the outcome, and the cells of `COLUMNS`.
        selected: The experiment that was chosen; link it to that of other widgets with `traitlets.link`.
        notes: What is wrong with the run's results.tsv, a sentence each.
    """

    _esm = script("history.js")
    _css = STYLE

    columns = traitlets.List(list(COLUMNS)).tag(sync=True)
    numeric = traitlets.List(sorted(_NUMERIC)).tag(sync=True)
    rows: traitlets.List[Any] = traitlets.List().tag(sync=True)
    notes: traitlets.List[Any] = traitlets.List().tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    beat = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)

    def __init__(self, run: Any, *, selected: int = -1, live: bool = True) -> None:
        super().__init__(selected=selected)
        self._source = RunSource.of(run)
        self._cells: dict[int, tuple[Experiment, list[Any]]] = {}
        self._table_seen: tuple[object, list[str]] = (None, [])
        self.refresh()
        self._begin(live)

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        try:
            experiments = self._source.read(lambda folder: folder.experiments)
            rows, notes, problem = [self._row(one) for one in experiments], self._problems(), ""
        except Unreadable as error:
            rows, notes, problem = [], [], str(error)
        if (rows, notes, problem) == (self.rows, self.notes, self.problem):
            return False
        with self.hold_sync():
            self.rows, self.notes, self.problem = rows, notes, problem
            self.label = f"{len(rows)} experiments of {self._source.name}"
        return True

    def _row(self, one: Experiment) -> list[Any]:
        known = self._cells.get(one.number)
        if known is None or known[0] is not one:
            known = self._cells[one.number] = (one, [one.number, outcome_of(one).key, *_cells(one)])
        return known[1]

    def _problems(self) -> list[str]:
        """What is wrong with results.tsv; the table itself comes from the journal, which has every experiment."""
        path = self._source.path / "results.tsv"
        try:
            stat = path.stat()
            seen: object = (stat.st_size, stat.st_mtime_ns)
        except OSError:
            seen = "missing"
        if seen != self._table_seen[0]:
            found = results.read(path).problems
            notes = [
                f"results.tsv, line {one.line}, cannot be read: {one_line(one.reason)}. This table comes from the "
                "journal and is complete; the line is left as it is, and `autokernel run` writes a lost row again."
                for one in found[:3]
            ]
            notes += [f"and {len(found) - 3} more lines"] if len(found) > 3 else []
            self._table_seen = seen, notes
        return self._table_seen[1]

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return with_html(super()._repr_mimebundle_(**options), self._static)

    def _static(self) -> str:
        if self.problem:
            return static_html(message(self.problem))
        notes = [node("p", note, class_="ak-problem") for note in self.notes]
        left_out = len(self.rows) - _MOST_STATIC
        rest = node("p", f"{left_out} earlier experiments are not shown", class_="ak-note") if left_out > 0 else None
        newest = [row[2:] for row in reversed(self.rows[-_MOST_STATIC:])]
        return static_html(node("div", *notes, _table(newest), rest, class_="ak"))


def _cells(one: Experiment) -> tuple[str, ...]:
    outcome = outcome_of(one)
    said = outcome.label if one.passed or not one.correctness else f"{outcome.label} ({one.correctness})"
    if one.decided_by == "person":
        said += ", by a person"
    return (
        str(one.number),
        f"{outcome.mark} {said}",
        times(one.speedup),
        interval(one.speedup),
        times(one.speedups.get("incumbent")),
        microseconds(one.latency_us),
        one_line(one.agent, limit=30),
        one_line(one.hypothesis),
    )


def _table(rows: Iterable[Iterable[str]]) -> Node:
    head = node("tr", *(node("th", name, scope="col") for name in COLUMNS))
    body = [
        node("tr", *(
            node("td", cell, class_="ak-num" if name in _NUMERIC else None)
            for name, cell in zip(COLUMNS, row, strict=True)
        ))
        for row in rows
    ]  # fmt: skip
    return node("table", node("thead", head), node("tbody", *body), class_="ak-table")
