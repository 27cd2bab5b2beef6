"""Wrong constants: what a number in a text may become."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["other_numbers"]

_NUMBER = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([fFuUlL]*)$")


def other_numbers(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind of fault, other number) for a decimal literal of Python or C++.

    An integer becomes its neighbours.  A fraction becomes one that is a thousandth larger, its own
    first four digits if it has more, and 0 becomes 1.
    """
    match = _NUMBER.match(text)
    if match is None:  # hexadecimal: a mask of lanes
        return
    digits, suffix = match.groups()
    if re.fullmatch(r"\d+", digits):
        yield "constant_changed", f"{int(digits) + 1}{suffix}"
        if int(digits) > 0:
            yield "constant_changed", f"{int(digits) - 1}{suffix}"
        return
    value = float(digits)
    yield "constant_changed", f"{value * 1.001!r}{suffix}" if value else f"1.0{suffix}"
    short = float(f"{value:.4g}")
    if short != value:
        yield "constant_cut", f"{short!r}{suffix}"
