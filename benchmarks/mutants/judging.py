"""Have mutants judged by the real verifier, one evaluator for all mutants of a starter.

Rows are written as JSON, one a line, as soon as they are known; a run that was stopped goes on where
it was, because a mutant whose key is in the file is not judged again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autokernel.errors import UsageError
from autokernel.evaluator import Evaluator, EvaluatorSettings
from autokernel.ops import Case
from autokernel.runner.client import Limits
from autokernel.verdict import Stage, Verdict
from benchmarks.mutants.equivalence import Difference, Equivalence
from benchmarks.mutants.faults import Mutant

__all__ = ["Outcome", "Row", "classify", "judge", "outcome_of_accepted", "read_rows"]

Row = dict[str, Any]
_LEAST_SECONDS = 10.0


class Outcome:
    """What became of a mutant."""

    INVALID = "invalid"  # it does not compile or cannot be imported
    CAUGHT = "caught"
    EQUIVALENT = "equivalent"  # accepted, and no output differs from the starter's
    TOLERATED = "tolerated"  # accepted, and outputs differ, but by less than the bound: it rounds otherwise
    MISSED = "missed"  # accepted, and some output is wrong


def judge(
    starter: str,
    chosen: Sequence[Mutant],
    *,
    device: str,
    progress: Callable[[str], None],
    late: Callable[[], bool] = lambda: False,
    cases: Sequence[Case] | None = None,
) -> Iterator[Row]:
    """Yield a row for each mutant of one starter, until ``late`` says that it is enough.

    Those that are accepted are compared with the starter on ``cases``, or on the broad ones when None.

    Raises:
        UsageError: The starter itself is not accepted, so nothing could be said of its mutants.
    """
    operation, backend = chosen[0].operation, chosen[0].backend
    with contextlib.ExitStack() as stack:
        evaluator = stack.enter_context(Evaluator(operation, device=device, settings=EvaluatorSettings(roofline=False)))
        limits = _limits(evaluator, starter, progress)
        evaluator.settings = dataclasses.replace(evaluator.settings, limits=limits)
        patient = dataclasses.replace(limits, call_seconds=max(60.0, limits.call_seconds))
        equivalence = Equivalence(evaluator.spec, evaluator.device.torch_name, starter, patient, cases)
        stack.enter_context(equivalence)
        for mutant in chosen:
            if late():
                return
            begin = time.monotonic()
            seed = int(mutant.key, 16)
            verdict = evaluator.verify(mutant.source, seed=seed)
            row = {
                **{name: getattr(mutant, name) for name in ("key", "operation", "backend", "fault", "line")},
                **{"before": mutant.before, "after": mutant.after, "device": verdict.device, "seed": seed},
                "harness": verdict.details.get("harness", ""),
                **classify(verdict),
            }
            if verdict.accepted:
                difference = equivalence.compare(mutant.source)
                row.update(dataclasses.asdict(difference), outcome=outcome_of_accepted(difference))
            row["seconds"] = round(time.monotonic() - begin, 2)
            progress(f"{operation} {backend} {mutant.fault} line {mutant.line}: {row['outcome']} {row['stage']}")
            yield row


def classify(verdict: Verdict) -> Row:
    """Say of a verdict whether and where the mutant was caught; ``missed`` stands for an accepted one."""
    row: Row = {"stage": "", "status": "", "findings": [finding.kind for finding in verdict.findings], "reason": ""}
    if verdict.accepted:
        return {**row, "outcome": Outcome.MISSED}
    row["reason"] = verdict.reason[:400]
    failed = next((stage for stage in verdict.stages if stage.name is verdict.failed_stage), None)
    if failed is None:
        return {**row, "outcome": Outcome.CAUGHT, "stage": "findings"}
    invalid = failed.cases[-1].label == "import" or re.search(r"\bCompil(e|ation)Error\b", verdict.reason) is not None
    row["status"] = failed.status.value
    return {**row, "outcome": Outcome.INVALID if invalid else Outcome.CAUGHT, "stage": failed.name.value}


def read_rows(file: Path) -> list[Row]:
    """The rows of a file, the last of each key; a line that was cut off by a kill is left out."""
    rows: dict[str, Row] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[row["key"]] = row
    return list(rows.values())


def outcome_of_accepted(difference: Difference) -> str:
    """Say of a mutant that the verifier accepted what its difference from the starter makes of it."""
    if not difference.changed:
        return Outcome.EQUIVALENT
    return Outcome.TOLERATED if difference.error_over_bound <= 1 else Outcome.MISSED


def _limits(evaluator: Evaluator, starter: str, progress: Callable[[str], None]) -> Limits:
    """Deadlines by the starter's own time, so that a mutant that hangs costs seconds and a slow one is no hang."""
    operation = evaluator.spec.name
    verdict = evaluator.verify(starter, seed=1)
    if not verdict.accepted:
        raise UsageError(f"the starter of {operation} is not accepted on {evaluator.device}: {verdict.reason}")
    slowest = max(case.seconds for case in _cases(verdict))
    progress(f"{operation}: the starter is accepted in {verdict.seconds:.1f} s; its slowest case takes {slowest:.1f} s")
    return Limits(load_seconds=60.0, call_seconds=max(_LEAST_SECONDS, 5.0 * slowest))


def _cases(verdict: Verdict) -> Iterable[Any]:
    return (case for stage in verdict.stages if stage.name is not Stage.DETERMINISM for case in stage.cases)
