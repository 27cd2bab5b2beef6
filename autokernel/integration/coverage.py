"""What a kernel was verified for, and whether a call lies within it.

A number such as ``eps`` is within what was verified if it lies between two verified values; any
other option (``causal``, ``activation``) must have been verified together with the sizes.  Needs
the standard library only: an exported kernel carries this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Coverage", "Options", "Sizes", "in_words", "without_numbers"]

_NUMBER = "a number"
Sizes = tuple[tuple[str, int], ...]
Options = tuple[tuple[str, Any], ...]
_Case = tuple[Sizes, str, Options]  # plain tuples, which torch.compile can look up while it traces


def without_numbers(options: Options) -> Options:
    """The options sorted by name, each number replaced by a word."""
    return tuple((name, _NUMBER if isinstance(value, float) else value) for name, value in sorted(options))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """The calls for which a kernel was verified.

    Attributes:
        cases: Sizes, dtype and options (numbers left out) of each case that passed.
        numbers: Smallest and largest verified value of each option that is a number.
    """

    cases: frozenset[_Case] = frozenset()
    numbers: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def objection(self, sizes: Sizes, dtype: str, options: Options, *, ranges: bool = False) -> str:
        """Why a call is not covered, in a few words; "" if it is.

        Args:
            sizes: By name, as in ``cases``.
            dtype: As in ``cases``.
            options: All of the operation's options.
            ranges: Accept sizes between the smallest and the largest that passed, each by itself.
        """
        for name, value in options:
            low, high = self.numbers.get(name, (0.0, -1.0))
            if isinstance(value, float) and not low <= value <= high:
                return f"{name}={value:g} was not verified"
        plain = without_numbers(options)
        if (sizes, dtype, plain) in self.cases:
            return ""
        alike = [one for one, its_dtype, its_options in self.cases if its_dtype == dtype and its_options == plain]
        if not alike:
            chosen = "".join(f", {name}={value}" for name, value in options)
            return f"{dtype}{chosen} was not verified"
        if ranges and all(_between(name, size, alike) for name, size in sizes):
            return ""
        return f"{in_words(sizes, dtype)} was not verified"


def in_words(sizes: Sizes, dtype: str) -> str:
    """Sizes and a dtype, such as ``M=6 N=65 float32``."""
    return " ".join([*(f"{name}={size}" for name, size in sizes), dtype])


def _between(name: str, size: int, alike: Iterable[Sizes]) -> bool:
    seen = [dict(sizes).get(name, size) for sizes in alike]
    return min(seen) <= size <= max(seen)
