"""What an error adds to a name that is not known: the known one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]

_LEAST_ALIKE = 0.6  # of `difflib`: 1 is the same, 0 has nothing in common


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `` (did you mean 'softmax'?)`` for the known name that is most like ``name``, or "" if none is.

    Upper and lower case do not matter.  Other digits make another name, not a slip: ``float64`` is no
    ``float16``, and ``rmsnorm-3`` no ``rmsnorm-1``.

    >>> did_you_mean("sofmax", ["rmsnorm", "softmax"])
    " (did you mean 'softmax'?)"
    >>> did_you_mean("float64", ["float16", "float32"])
    ''
    """
    given = str(name).lower()
    candidates = {one.lower(): one for one in known if _digits(one) == _digits(given) or not _digits(given)}
    close = difflib.get_close_matches(given, candidates, n=1, cutoff=_LEAST_ALIKE)
    return f" (did you mean {candidates[close[0]]!r}?)" if close and candidates[close[0]] != name else ""


def _digits(text: str) -> str:
    return "".join(char for char in text if char.isdigit())
