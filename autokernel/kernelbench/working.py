"""Work on the problems of a collection: baselines, candidates that were given, experiments of an agent, checks.

What was judged is not judged again, so a stopped run goes on where it was.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from autokernel.errors import AutokernelError, InvalidKernel, UsageError
from autokernel.experiment import Experiment
from autokernel.history import blob_id
from autokernel.kernelbench.collection import Collection, Entry
from autokernel.kernelbench.judging import Checker, ProblemJudge
from autokernel.kernelbench.texts import adapted
from autokernel.session import Session

__all__ = ["Worked", "candidates", "texts_of", "work"]


@dataclasses.dataclass(frozen=True)
class Worked:
    """What was done for one problem.

    Attributes:
        entry: The problem.
        experiments: Those that are judged by now, the baseline included.
        failed: Why the work on it ended early, and which given files are no candidates, or "".
    """

    entry: Entry
    experiments: tuple[Experiment, ...]
    failed: str = ""


def candidates(folder: Path, entries: Sequence[Entry]) -> dict[str, list[Path]]:
    """The files in a folder that are candidates for problems, by the problems' names.

    A file belongs to a problem if it is called as the problem's file is, in a folder called as its level's folder
    is; or as the problem (``level1_1_name.py``); several candidates have a word after two hyphens
    (``1_name--second.py``).

    Raises:
        UsageError: There is no such folder, or no file in it belongs to a problem.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is no folder; give the one that holds the candidates")
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*.py")):
        stem = file.stem.partition("--")[0]
        for entry in entries:
            problem = Path(entry.file)
            same = stem == problem.stem and (file.parent.name == problem.parent.name or file.parent == folder)
            if same or stem == entry.name:
                found.setdefault(entry.name, []).append(file)
    if not found:
        raise UsageError(f"no file in {str(folder)!r} is called as one of the problems, such as {entries[0].name}.py")
    return found


async def work(
    collection: Collection,
    entries: Sequence[Entry],
    *,
    experiments: int = 0,
    minutes: float | None = None,
    given: Mapping[str, Sequence[Path]] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[Worked]:
    """Work on problems one after another, and yield what was done for each.

    Args:
        collection: Where they are.
        entries: The problems; those that were refused are passed over.
        experiments: So many are to be there for each problem, those of given candidates included.
        minutes: Begin no problem after so many.
        given: Files with candidates by the problem's name, judged before the agent is asked.
        tell: Told what is being done.
    """
    begin = time.monotonic()
    for entry in entries:
        if entry.facts is None:
            continue
        if minutes is not None and time.monotonic() - begin > 60 * minutes:
            return
        tell(f"{entry.name}: judging")
        texts, unfit = texts_of(collection, entry, (given or {}).get(entry.name, ()))
        try:
            await _judged(collection, entry, experiments, texts)
            tell(f"{entry.name}: the benchmark's own check")
            _check(collection, entry)
        except AutokernelError as error:
            unfit.append(str(error))
        failed = " ".join("; ".join(unfit).split())[:500]
        yield Worked(entry, tuple(collection.run(entry.name).experiments), failed)


def texts_of(collection: Collection, entry: Entry, given: Sequence[Path]) -> tuple[list[tuple[str, str]], list[str]]:
    """The names and kernel.py texts of given candidates, and why others are none."""
    assert entry.facts is not None
    backend, problem = collection.run(entry.name).target.backend, collection.problem_text(entry.name)
    texts, unfit = [], []
    for file in given:
        try:
            texts.append((file.name, adapted(file.read_text("utf-8"), problem, entry.facts, backend)))
        except (InvalidKernel, OSError, UnicodeDecodeError) as error:
            unfit.append(f"{file}: {error}")
    return texts, unfit


async def _judged(collection: Collection, entry: Entry, experiments: int, texts: Sequence[tuple[str, str]]) -> None:
    """Bring a problem's run to so many experiments; the baseline is always judged."""
    run = collection.run(entry.name)
    known = {one.blob for one in run.experiments if one.decision}
    fresh = {blob_id(text): (name, text) for name, text in texts}  # equal texts are one candidate
    new = [one for blob, one in fresh.items() if blob not in known]
    missing = experiments - len(new) - sum(1 for one in run.experiments if one.number and one.decision)
    begun = any(one.number == 0 and one.decision for one in run.experiments)
    if begun and not new and missing <= 0:
        return
    judge = ProblemJudge(run.target, run.source(0), library=collection.settings.library)
    async with Session.open(run.path, evaluator=judge) as session:
        if not begun:
            await session.step()
        for name, text in new:
            await session.submit(text, hypothesis=f"the candidate {name}", agent="given")
        if missing > 0 and _can_search(session):
            await session.run(experiments=missing)


def _can_search(session: Session) -> bool:
    """The search agent changes constants of kernels, and the problem's own model, which a run starts from, has none."""
    return session.target.agent not in ("auto", "search") or (session.best is not None and session.best.number > 0)


def _check(collection: Collection, entry: Entry) -> None:
    """Ask the benchmark's own check about every candidate that it was not asked about."""
    run, checks = collection.run(entry.name), collection.checks(entry.name)
    todo = [one for one in run.experiments if one.number and one.decision and one.number not in checks]
    if not todo:
        return
    device = run.target.device
    with Checker(str(collection.spec(entry.name)), "cuda:0" if device == "cuda" else device) as checker:
        for experiment in todo:
            checks[experiment.number] = dataclasses.asdict(checker.check(run.source(experiment.number)))
    collection.save_checks(entry.name, checks)
