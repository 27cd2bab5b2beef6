"""Count what became of the mutants: by operation and stage, and by kind of fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.mutants.judging import Outcome, Row

__all__ = ["summary", "tables"]

STAGES = ("smoke", "sweep", "stability", "determinism", "edge", "findings")


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """All figures as JSON-ready data.

    ``share`` is that of the caught among those that change any bit of an output: caught / (caught +
    tolerated + missed); ``share_of_wrong`` leaves out those that only round otherwise.
    """
    groups = sorted({(row["backend"], row["operation"]) for row in rows})
    return {
        "total": _count(rows),
        "starters": [
            {"backend": backend, "operation": operation, **_count(_of(rows, backend=backend, operation=operation))}
            for backend, operation in groups
        ],
        "faults": [
            {"fault": fault, **_count(_of(rows, fault=fault))} for fault in sorted({row["fault"] for row in rows})
        ],
        "harness": sorted({row["harness"] for row in rows}),
        "devices": sorted({row["device"] for row in rows if row["device"]}),
        "survivors": [row for row in rows if row["outcome"] in (Outcome.MISSED, Outcome.TOLERATED)],
    }


def tables(rows: Sequence[Row]) -> str:
    """The figures as Markdown: a table by starter, one by fault, and the survivors."""
    figures = summary(rows)
    named = [(f"{row['operation']} ({row['backend']})", row) for row in figures["starters"]]
    by_starter = _table("starter", [*named, ("all", figures["total"])])
    by_fault = _table("fault", [(row["fault"], row) for row in figures["faults"]])
    survivors = [
        f"- {row['operation']} ({row['backend']}), line {row['line']}, {row['fault']}: `{row['before']}` -> "
        f"`{row['after']}`: {row['outcome']}; {row['changed']} of {row['cases']} outputs differ; error at most "
        f"{row['error_over_bound']:.3g} of the bound, the starter's {row['starter_over_bound']:.3g} ({row['worst']})"
        for row in figures["survivors"]
    ]
    return "\n\n".join([by_starter, by_fault, "\n".join(survivors) or "No mutant survived."])


def _of(rows: Iterable[Row], **wanted: str) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _count(rows: Sequence[Row]) -> dict[str, Any]:
    outcomes = Counter(row["outcome"] for row in rows)
    caught = [row for row in rows if row["outcome"] == Outcome.CAUGHT]
    wrong = outcomes[Outcome.CAUGHT] + outcomes[Outcome.MISSED]
    changing = wrong + outcomes[Outcome.TOLERATED]
    return {
        "mutants": len(rows),
        "invalid": outcomes[Outcome.INVALID],
        "equivalent": outcomes[Outcome.EQUIVALENT],
        "stages": {stage: sum(row["stage"] == stage for row in caught) for stage in STAGES},
        "crashed": sum(row["status"] in ("crash", "timeout") for row in caught),
        "caught": outcomes[Outcome.CAUGHT],
        "tolerated": outcomes[Outcome.TOLERATED],
        "missed": outcomes[Outcome.MISSED],
        "share": outcomes[Outcome.CAUGHT] / changing if changing else None,
        "share_of_wrong": outcomes[Outcome.CAUGHT] / wrong if wrong else None,
    }


def _table(first: str, named: Sequence[tuple[str, dict[str, Any]]]) -> str:
    head = (first, "mutants", "invalid", "equivalent", *STAGES, "caught", "(crashed)", "tolerated", "missed")
    head += ("caught of changing", "caught of wrong")
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for name, row in named:
        shares = ["" if row[key] is None else f"{100 * row[key]:.1f} %" for key in ("share", "share_of_wrong")]
        cells = [name, row["mutants"], row["invalid"], row["equivalent"], *row["stages"].values()]
        cells += [row["caught"], row["crashed"], row["tolerated"], row["missed"], *shares]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
