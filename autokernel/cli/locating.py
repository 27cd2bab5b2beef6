"""Which run a command means: a path, a name under ``--root``, or the one that is there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autokernel.errors import UsageError
from autokernel.hints import did_you_mean

if TYPE_CHECKING:
    from autokernel.experiment import Experiment
    from autokernel.runfolder import RunFolder

__all__ = ["ROOT", "TARGET", "find_run", "number", "open_experiment", "open_folder", "split_run"]

ROOT = Path("runs")
TARGET = "target.toml"  # the file that makes a folder a run


def find_run(run: str | None, root: Path, *, acts: bool) -> Path:
    """Return the folder of the run that the command line names.

    Args:
        run: A path, a name under ``root``, or None.
        root: The folder that holds runs.
        acts: Without a name, a command that only reads takes the newest run, and says which; one
            that acts wants a name when there are several.

    Raises:
        UsageError: There is no such run, or none is named and several are there.
    """
    if run is not None:
        for path in (Path(run), root / run):
            if (path / TARGET).is_file():
                return path
        hint = did_you_mean(run, [path.name for path in _runs(root)])
        raise UsageError(f"no run {run!r}{hint}, neither as a folder nor under {str(root)!r}{_known(root)}")
    runs = _runs(root)
    if not runs:
        raise UsageError(f"there is no run under {str(root)!r}; create one with: autokernel new rmsnorm")
    if len(runs) > 1 and acts:
        raise UsageError(f"there are {len(runs)} runs under {str(root)!r}, so name one{_known(root)}")
    if len(runs) > 1:
        print(f"run: {runs[0]} (the newest of {len(runs)})", file=sys.stderr)
    return runs[0]


def _runs(root: Path) -> list[Path]:
    """The runs under ``root``, the one that changed last first."""
    found = [target.parent for target in root.glob(f"*/{TARGET}") if not target.parent.name.startswith(".")]
    return sorted(found, key=_changed, reverse=True)


def _changed(run: Path) -> float:
    files = (run / "results.tsv", run / ".autokernel" / "events.jsonl", run / TARGET)
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)


def _known(root: Path) -> str:
    names = [path.name for path in _runs(root)][:10]
    return f" (there are: {', '.join(names)})" if names else ""


def open_folder(run: str | None, root: Path) -> RunFolder:
    """The read-only view of the run that the command line names."""
    path = find_run(run, root, acts=False)

    from autokernel.runfolder import RunFolder

    return RunFolder(path)


def open_experiment(words: Sequence[str], root: Path) -> tuple[RunFolder, Experiment]:
    """The run and the experiment that ``[RUN] [N]`` words of a command line name.

    Without a number the latest experiment is meant, and stderr says which that is.

    Raises:
        UsageError: There is no such run or experiment, or there are more than two words.
    """
    named = len(words) == 2 or (len(words) == 1 and words[0].isdigit())
    run, which = split_run(words, "[N]") if named or len(words) > 2 else (next(iter(words), None), None)
    folder = open_folder(run, root)
    if which is not None:
        return folder, folder.experiment(number(which))
    latest = folder.experiments[-1]
    print(f"experiment: {latest.number} (the latest of {folder.path.name})", file=sys.stderr)
    return folder, latest


def split_run(words: Sequence[str], what: str) -> tuple[str | None, str]:
    """Split ``[RUN] VALUE`` words of a command line.

    Raises:
        UsageError: There is no value, or there are more than two words.

    >>> split_run(["rmsnorm-1", "3"], "N")
    ('rmsnorm-1', '3')
    >>> split_run(["3"], "N")
    (None, '3')
    """
    if len(words) == 1:
        return None, words[0]
    if len(words) == 2:
        return words[0], words[1]
    raise UsageError(f"give [RUN] {what}, got {len(words)} arguments: {' '.join(words)}")


def number(text: str) -> int:
    """Read the number of an experiment.

    Raises:
        UsageError: It is none.
    """
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{text!r} is no experiment number; use 0, 1, 2 ... (see: autokernel log)")
    return int(text)
