"""Which groups of calls are one of the nine operations, found by data flow.

A matcher takes the graph and yields `Match` objects; the order here is the order of precedence: what a
larger operation has taken is not offered to a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autokernel.profiling.graph import Graph, Match
from autokernel.profiling.patterns import attention, loss, mlp, normalisation, rotary, single

__all__ = ["find"]

_MATCHERS: tuple[Callable[[Graph], Iterable[Match]], ...] = (
    loss.cross_entropy,
    attention.attention,
    mlp.fused_mlp,
    rotary.rotary_embedding,
    normalisation.normalisation,
    single.softmax,
    single.matmul,
    single.reduce,
)


def find(graph: Graph) -> list[Match]:
    """All operations in the graph, in the order of their first call; no call is in two of them."""
    taken: set[int] = set()
    found: list[Match] = []
    for matcher in _MATCHERS:
        for match in matcher(graph):
            if not taken.intersection(match.calls):
                taken.update(match.calls)
                found.append(match)
    return sorted(found, key=lambda match: match.calls[0])
