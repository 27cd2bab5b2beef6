"""Experiments as the points of the progress figure: what became of each, with its colour and its symbol."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from autokernel.errors import UsageError
from autokernel.experiment import Experiment
from autokernel.measurement import Ratio
from autokernel.plaintext import one_line
from autokernel.plots.style import BLACK, BLUE, GREEN, ORANGE, VERMILION
from autokernel.results import Row

__all__ = ["OUTCOMES", "ProgressPoint", "experiment_points", "outcome_of", "progress_points"]

OUTCOMES: dict[str, tuple[str, str, str]] = {  # outcome -> (name in the legend, colour, plotly symbol)
    "baseline": ("starting kernel", BLACK, "diamond"),
    "keep": ("kept", GREEN, "circle"),
    "revert": ("reverted: no certain gain", BLUE, "circle-open"),
    "waiting": ("waiting for a person", ORANGE, "triangle-up"),
    "rejected": ("rejected by the verifier", VERMILION, "x"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressPoint:
    """One experiment of a run as the progress figure shows it.

    Attributes:
        experiment: Its number.
        outcome: A key of `OUTCOMES`.
        speedup: Over PyTorch with its interval, or None if it was not timed.
        hypothesis: What the agent wrote; shown on hover.
        commit: The commit that holds the candidate.
        correctness: PASS, FAIL, TIMEOUT or CRASH.
    """

    experiment: int
    outcome: str
    speedup: Ratio | None = None
    hypothesis: str = ""
    commit: str = ""
    correctness: str = ""


def progress_points(
    rows: Iterable[Row | Mapping[str, Any]], intervals: Mapping[int, Ratio] | None = None
) -> list[ProgressPoint]:
    """Turn rows of results.tsv into points.

    Args:
        rows: `autokernel.results.Row` objects, or mappings with the columns of results.tsv whose
            values may be text or numbers; an empty text or a speedup of 0 means no figure.
        intervals: Speedup over PyTorch with its interval by experiment, where the records have it.

    Raises:
        UsageError: A row has no number of an experiment.
    """
    points = []
    for entry in rows:
        row = entry if isinstance(entry, Mapping) else entry.fields()
        number = _number(row.get("experiment"))
        if number is None:
            raise UsageError(f"a row of results.tsv has no experiment number: {one_line(dict(row))}")
        value = _number(row.get("speedup_vs_pytorch"))
        ratio = (intervals or {}).get(int(number)) or (Ratio(value, value, value) if value else None)
        points.append(
            ProgressPoint(
                experiment=int(number),
                outcome=outcome_of(str(row.get("decision") or ""), str(row.get("correctness") or "")),
                speedup=ratio,
                hypothesis=str(row.get("description") or ""),
                commit=str(row.get("commit") or ""),
                correctness=str(row.get("correctness") or ""),
            )
        )
    return points


def experiment_points(experiments: Iterable[Experiment]) -> list[ProgressPoint]:
    """Turn the experiments of a run into points, with their intervals; those not yet judged are left out."""
    return [
        ProgressPoint(
            experiment=experiment.number,
            outcome=outcome_of(experiment.decision, experiment.correctness),
            speedup=experiment.speedup,
            hypothesis=experiment.hypothesis,
            commit=experiment.commit,
            correctness=experiment.correctness,
        )
        for experiment in experiments
        if experiment.correctness
    ]


def outcome_of(decision: str, correctness: str) -> str:
    """The key of `OUTCOMES` for a decision and a correctness as results.tsv has them."""
    if correctness not in ("PASS", ""):
        return "rejected"
    return decision if decision in OUTCOMES else "waiting"


def _number(value: Any) -> float | None:
    try:
        figure = math.nan if value is None or value == "" else float(value)
    except (TypeError, ValueError):
        return None
    return figure if math.isfinite(figure) else None
