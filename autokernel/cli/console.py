"""Where a command's output goes: results to stdout, progress and complaints to stderr.

Nothing is read as markup: candidates write hypotheses and error messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autokernel.plaintext import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["complain", "console", "emit_json", "live_progress", "say", "text"]

_PLAIN_WIDTH = 140  # of tables that go to a file or a pipe, where no terminal sets a width


def console(*, stderr: bool = False) -> Console:
    """A rich console on stdout (or stderr) that shows text as it is."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def text(value: object, style: str = "") -> Text:
    """Foreign text, cleaned, for a cell of a table."""
    from rich.text import Text

    return Text(clean(value), style=style)


def say(message: object = "") -> None:
    """Print a line for a person on stdout."""
    print(clean(message))


def complain(message: object) -> None:
    """Print an error on stderr."""
    print(f"autokernel: {clean(message)}", file=sys.stderr)


def emit_json(data: Any) -> None:
    """Print one JSON document on stdout; figures that are not finite become null."""
    print(json.dumps(_finite(data), indent=2, allow_nan=False, default=str))


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if data - data == 0 else None
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return data


@contextmanager
def live_progress(title: str, *, quiet: bool = False) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show progress dictionaries of the evaluator on stderr while the block runs.

    On a terminal one line moves; elsewhere each stage, and each case that fails, is a line.

    Args:
        title: What is being done.
        quiet: Show nothing unless stderr is a terminal (for ``--json``).
    """
    if sys.stderr.isatty():
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=console(stderr=True), transient=True) as bar:
            task = bar.add_task(one_line(title, limit=100), total=None)
            yield lambda event: bar.update(task, description=one_line(f"{title}: {describe(event)}", limit=100))
    elif quiet:
        yield lambda event: None
    else:
        yield _StageLines()


class _StageLines:
    """Prints a line for each stage that begins, and for each case that does not pass."""

    def __init__(self) -> None:
        self._stage: object = None

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event.get("stage") != self._stage:
            self._stage = event.get("stage")
            print(f"{one_line(self._stage)} ...", file=sys.stderr, flush=True)
        if event.get("status") in ("fail", "crash", "timeout"):
            print(f"  {one_line(describe(event))}", file=sys.stderr, flush=True)


def describe(event: Mapping[str, Any]) -> str:
    """A progress dictionary (``stage``, ``case``, ``status``, ``worker``) in a few words."""
    words = [str(event[key]) for key in ("stage", "case") if event.get(key)]
    status = f": {event['status']}" if event.get("status") else ""
    worker = f" ({event['worker']})" if event.get("worker") else ""
    return " ".join(words) + status + worker
