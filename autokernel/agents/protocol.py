"""What an agent gets and gives: `Context`, `Proposal`, `Exhausted`.

An agent is anything with ``name`` and ``async propose(context) -> Proposal``.  It sees the run
through the context only, and keeps nothing that a restart would lose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from autokernel.errors import AutokernelError
from autokernel.experiment import Experiment
from autokernel.target import Target

__all__ = ["Agent", "Context", "Exhausted", "Proposal"]


class Exhausted(AutokernelError):
    """The agent has nothing more to try; the message says what it tried."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """What an agent may know when it proposes the next candidate.

    Attributes:
        folder: The run folder.
        target: Operation, backend, device, dtype, timing cases.
        description: The operation in a line: formula and layout.
        signature: ``kernel_fn``'s parameters.
        kernel: The text of the best kernel so far.
        best: Its experiment.
        experiments: All experiments in order.
        judged: Git blob ids (`autokernel.history.blob_id`) of all texts that were judged.
        comments: What people said since the last proposal.
        refused: Why the proposal before this one was not taken, or "".
        source: ``source(number)`` is the kernel of an experiment.
        diff: ``diff(number)`` is its change.
        record: ``record(number)`` is its full record, stages and samples included.
    """

    folder: Path
    target: Target
    description: str
    signature: str
    kernel: str
    best: Experiment
    experiments: Sequence[Experiment]
    judged: frozenset[str]
    comments: tuple[str, ...]
    refused: str
    source: Callable[[int], str]
    diff: Callable[[int], str]
    record: Callable[[int], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
    """The next candidate.

    Attributes:
        source: The whole text of a kernel.py.
        hypothesis: What the change should bring, and why, in a sentence.
        tokens: Language-model tokens that it took, or None.
        seconds: What the agent took; measured by the session when None.
        trace: The agent's exchange, for the record; JSON-ready.
    """

    source: str
    hypothesis: str
    tokens: int | None = None
    seconds: float | None = None
    trace: Mapping[str, Any] | None = None


@runtime_checkable
class Agent(Protocol):
    """Whatever proposes the next candidate."""

    @property
    def name(self) -> str:
        """Stands in results.tsv."""

    async def propose(self, context: Context) -> Proposal:
        """Propose the next candidate.

        Raises:
            Exhausted: There is nothing more to try.
        """
