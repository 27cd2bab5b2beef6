"""Carry out what a person decided in a widget, in whatever process the run lives.

A decision names what it is about: the experiment and its commit as the person saw them.  If either has
changed, or somebody decided meanwhile, nothing happens and the person is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autokernel.errors import RunBusy, UsageError
from autokernel.experiment import Experiment, State
from autokernel_widgets.following import RunSource

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["comment", "decide", "driver_words", "edit"]


def decide(source: RunSource, kind: str, number: int, commit: str) -> str:
    """Keep or revert the experiment that waits.

    Args:
        source: The run.
        kind: ``keep`` or ``revert``.
        number: The experiment.
        commit: Its commit, as the person saw it.

    Returns:
        What was done, in a sentence.

    Raises:
        UsageError: It does not wait, is another than was seen, or failed verification.
        Unreadable: The run cannot be read.
    """
    experiment = source.read(lambda folder: folder.experiment(number))
    objection = _objection(experiment, kind, commit)
    if objection:
        raise UsageError(objection)
    taken = _hand_over(source, kind, lambda session: getattr(session, kind)(number), experiment=number)
    return f"experiment {number}: {kind}; {taken}"


def edit(source: RunSource, number: int, text: str, hypothesis: str) -> str:
    """Have a person's kernel judged next, by the same five stages.

    Args:
        source: The run.
        number: The experiment whose kernel was edited.
        text: The whole text of a kernel.py.
        hypothesis: What the change should bring.

    Raises:
        UsageError: The text is empty, or nothing was changed.
        Unreadable: The run cannot be read.
    """
    if not text.strip():
        raise UsageError("the kernel is empty; write the whole text of a kernel.py")
    if text == source.read(lambda folder: folder.source(number)):
        raise UsageError(f"nothing was changed: this is the kernel of experiment {number}")
    words = hypothesis.strip() or f"edit of experiment {number} by a person"
    taken = _hand_over(
        source, "edit", lambda session: session.edit(text, hypothesis=words), source_text=text, hypothesis=words
    )
    return f"your kernel is judged next; {taken}"


def comment(source: RunSource, text: str) -> str:
    """Tell the agent something; it reads it before its next proposal.

    Raises:
        UsageError: The comment is empty.
        Unreadable: The run cannot be read.
    """
    if not text.strip():
        raise UsageError("the comment is empty; write what the agent should know")
    words = text.strip()
    return f"your comment goes to the agent's next proposal; {_send(source, 'comment', text=words)}"


def driver_words(driver: Any) -> str:
    """Who drives a run, in words."""
    if driver.get("pid") == os.getpid():
        return "this notebook"
    return f"process {driver.get('pid', '?')} on {driver.get('host', '?')}"


def _objection(experiment: Experiment, kind: str, commit: str) -> str:
    number = experiment.number
    if experiment.state is State.DECIDED:
        return f"experiment {number} is decided already: {experiment.decision}, by {experiment.decided_by}"
    if experiment.correctness and not experiment.passed and kind == "keep":
        return f"experiment {number} failed verification and cannot be kept"
    if experiment.state is not State.WAITING:
        return f"experiment {number} is not judged yet"
    if experiment.commit != commit:
        return f"experiment {number} is not the one that you saw (commit {commit[:12]}); look at it again"
    return ""


def _hand_over(source: RunSource, kind: str, work: Callable[[Session], object], **data: Any) -> str:
    """Let the process that drives the run do it; when nobody does, do it here."""
    driver = source.read(lambda folder: folder.status.driver)
    if source.session is not None and driver is not None and driver.get("pid") == os.getpid():
        work(source.session)
        return "done"
    if driver is None:
        from autokernel.session import Session

        try:
            with Session.open(source.path) as session:
                work(session)
            return "done; nobody drives the run, so Start it to go on"
        except RunBusy:
            pass  # somebody has just begun to
    if "source_text" in data:
        data["source"] = data.pop("source_text")
    return _send(source, kind, **data)


def _send(source: RunSource, kind: str, **data: Any) -> str:
    source.read(lambda folder: folder.send(kind, by="person", **data))
    driver = source.read(lambda folder: folder.status.driver)
    return "nobody drives the run, so it waits for the next Start" if driver is None else f"told {driver_words(driver)}"
