"""Which replacement makes a check fail: first alone, then in pairs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from autokernel.integration.sites import Site

__all__ = ["Blame", "find_blame"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blame:
    """What was found.

    Attributes:
        kernels: Names of the kernels to blame.
        places: Places that suffice for the failure: ``path (function)``.
        how: ``alone``, ``in a pair``, ``all together`` or ``not reproduced``.
        rest_passes: Whether the check passes with every other kernel.
        runs: How many runs of the model it took.
    """

    kernels: tuple[str, ...]
    places: tuple[str, ...]
    how: str
    rest_passes: bool
    runs: int

    def __str__(self) -> str:
        if self.how == "not reproduced":
            return "the failure did not come again when it was looked into; the model or a kernel is not deterministic"
        names = " and ".join(self.kernels)
        shown = ", ".join(self.places[:4]) + (f" and {len(self.places) - 4} more" if len(self.places) > 4 else "")
        rest = "with all other kernels the check passes" if self.rest_passes else "there is more that fails besides"
        return f"to blame: {names}, {self.how}, at {shown}; {rest}"


def find_blame(sites: Sequence[Site], fails: Callable[[Sequence[Site]], bool]) -> Blame:
    """Find the replacements that a failure needs.

    Args:
        sites: The places where kernels ran, with their counts.
        fails: Runs the check with kernels at some places only.
    """
    runs = 0

    def tried(some: Sequence[Site]) -> bool:
        nonlocal runs
        runs += 1
        return fails(some)

    groups: dict[tuple[str, ...], list[Site]] = {}
    for site in sites:
        groups.setdefault(tuple(sorted(site.kernel_calls)), []).append(site)
    guilty = [names for names, members in groups.items() if tried(members)]
    how, places = "alone", [site for names in guilty for site in _smallest(groups[names], tried)]
    if not guilty:
        how = "in a pair"
        for one, other in itertools.combinations(groups, 2):
            if tried(groups[one] + groups[other]):
                guilty, places = [one, other], groups[one] + groups[other]
                break
    if not guilty:
        how = "all together" if tried(sites) else "not reproduced"
        guilty, places = list(groups), list(sites)
    innocent = [site for names, members in groups.items() if names not in guilty for site in members]
    return Blame(
        kernels=tuple(name for names in guilty for name in names),
        places=tuple(f"{site.path or 'the model itself'} ({site.what})" for site in places),
        how=how,
        rest_passes=not (innocent and tried(innocent)),
        runs=runs,
    )


def _smallest(sites: Sequence[Site], fails: Callable[[Sequence[Site]], bool]) -> Sequence[Site]:
    """Halve the places as long as one half fails by itself."""
    while len(sites) > 1:
        middle = len(sites) // 2
        for half in (sites[:middle], sites[middle:]):
            if fails(half):
                sites = half
                break
        else:
            break
    return sites
