"""The experiments of a run as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

import ipywidgets

from autokernel.experiment import Experiment, State
from autokernel.plaintext import one_line
from autokernel.runfolder import RunFolder
from autokernel_widgets.following import folder_of, follow

__all__ = ["History"]

_HEADER = ("n", "outcome", "over PyTorch", "95 % interval", "hypothesis")
_NUMERIC = {"n", "over PyTorch", "95 % interval"}


class History(ipywidgets.HTML):
    """One row per experiment, the newest first.

    Everything that an agent wrote is escaped: it is shown as text and never runs.

    Args:
        run: A run folder, or its path.

    Raises:
        UsageError: The folder is no run.
    """

    def __init__(self, run: RunFolder | str | Path) -> None:
        self._folder = folder_of(run)
        self._shown = _table(self._folder.experiments)
        super().__init__(value=self._shown)

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        value = _table(self._folder.experiments)
        if value == self._shown:
            return False
        self.value = self._shown = value
        return True

    async def follow(self, *, interval_seconds: float = 0.5, seconds: float | None = None) -> None:
        """Keep the table up to date: for so many seconds, or until the task is cancelled."""
        await follow(self.refresh, interval_seconds=interval_seconds, seconds=seconds)


def _table(experiments: Iterable[Experiment]) -> str:
    rows = [_row(_cells(experiment), "td") for experiment in experiments]
    # No colours: the notebook's theme, light or dark, decides them.
    return f"<table>{_row(_HEADER, 'th')}{''.join(reversed(rows))}</table>"


def _cells(experiment: Experiment) -> tuple[str, ...]:
    ratio = experiment.speedup
    return (
        str(experiment.number),
        _outcome(experiment),
        "" if ratio is None else f"{ratio.value:.3f}×",
        "" if ratio is None else f"{ratio.low:.3f} to {ratio.high:.3f}",
        one_line(experiment.hypothesis),
    )


def _outcome(experiment: Experiment) -> str:
    if experiment.state is not State.DECIDED:
        return experiment.state.value
    return experiment.decision if experiment.passed else f"{experiment.decision} ({experiment.correctness})"


def _row(cells: Iterable[str], tag: str) -> str:
    parts = []
    for name, cell in zip(_HEADER, cells, strict=True):
        align = "right" if name in _NUMERIC else "left"
        parts.append(f'<{tag} style="text-align:{align};padding:0 .8em">{html.escape(cell)}</{tag}>')
    return f"<tr>{''.join(parts)}</tr>"
