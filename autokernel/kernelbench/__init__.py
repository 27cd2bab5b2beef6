"""KernelBench problems as operations: `Collection`, `work`, `score`; see docs/kernelbench.md."""

from __future__ import annotations

from autokernel.kernelbench.collection import Collection, Entry, Settings, find_problems
from autokernel.kernelbench.examine import Refused
from autokernel.kernelbench.score import Score, score
from autokernel.kernelbench.working import Worked, candidates, work

__all__ = [
    "Collection",
    "Entry",
    "Refused",
    "Score",
    "Settings",
    "Worked",
    "candidates",
    "find_problems",
    "score",
    "work",
]
