"""The tunable constants of a kernel's text: which there are, what they may be, how to change them.

A kernel declares them at the top level of the module in capitals (``NUM_WARPS = 4``) and uses them
further down.  A comment beside one may list its values: ``# tune: 1, 2, 4``, or within a sentence
``# rows fetched ahead; one of 0, 1, 2``.  Otherwise they follow from the name and the kind.  What is
no tuning (``KERNEL_TYPE``, ``BACKEND``, source texts, epsilons) is left alone.

The text is never executed.  Which value to try is the search agent's question.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["Tunable", "Value", "replace", "skeleton", "tunables"]

_LISTED = re.compile(r"#\s*tune:\s*(.+?)\s*$|\bone of\s+([^:;()#]+)")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*$")
_NOT_TUNED = re.compile(r"(KERNEL_TYPE|BACKEND|(.*_)?(SRC|SOURCE|EPS|EPSILON|SEED|VERSION|DTYPE|INDEX))$")
Value = int | float | bool | str


@dataclasses.dataclass(frozen=True)
class Tunable:
    """A constant that may be changed.

    Attributes:
        name: Its name.
        value: Its value in the text.
        start: Where the value stands in the UTF-8 text, in bytes.
        stop: Where it ends.
        choices: All values to try, ``value`` among them; numbers in rising order.
        meaning: What its comment says, without the list of values.
    """

    name: str
    value: Value
    start: int
    stop: int
    choices: tuple[Value, ...]
    meaning: str = ""

    @property
    def ordered(self) -> bool:
        """Whether the choices are numbers, so that one lies between two others."""
        return all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in self.choices)


def tunables(source: str, *, cores: int | None = None) -> tuple[Tunable, ...]:
    """Find the tunable constants of a kernel's text; none if it is no Python.

    Args:
        source: The text.
        cores: Most threads to try; the number of this machine's when None.

    >>> text = "NUM_STAGES = 2\\nBM = 64  # tune: 32, 64\\nkernel_fn = lambda x: run(x, BM, NUM_STAGES)\\n"
    >>> [(one.name, one.value, one.choices) for one in tunables(text)]
    [('NUM_STAGES', 2, (1, 2, 3, 4, 5, 6, 7, 8)), ('BM', 64, (32, 64))]
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    raw = source.encode("utf-8", "replace")
    lines = raw.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(len(line) for line in lines)]
    assigned = Counter(_assignment(node)[0] for node in body)
    found = []
    for node in body:
        name, expression = _assignment(node)
        if not _NAME.match(name) or _NOT_TUNED.match(name) or assigned[name] > 1 or expression is None:
            continue
        last = (expression.end_lineno or expression.lineno) - 1
        start = starts[expression.lineno - 1] + expression.col_offset
        stop = starts[last] + (expression.end_col_offset or 0)
        value = _literal(expression)
        comment = raw[stop : starts[last + 1]].decode("utf-8", "replace").strip()
        choices = _choices(name, value, comment, cores or os.cpu_count() or 1)
        used = re.search(rf"\b{name}\b", raw[starts[last + 1] :].decode("utf-8", "replace"))
        if value is not None and len(choices) > 1 and used:
            meaning = _LISTED.sub("", comment).strip("#;,. ")
            found.append(Tunable(name, value, start, stop, choices, meaning))
    return tuple(found)


def replace(source: str, changes: Sequence[tuple[Tunable, Value]]) -> str:
    """Return the text with other values for some of its constants.

    >>> text = "NUM_WARPS = 4\\nkernel_fn = lambda x: run(x, NUM_WARPS)\\n"
    >>> (warps,) = tunables(text)
    >>> replace(text, [(warps, 8)]).splitlines()[0]
    'NUM_WARPS = 8'
    """
    return _spliced(source, [(tunable, repr(value)) for tunable, value in changes])


def skeleton(source: str, found: Sequence[Tunable]) -> str:
    """The text without the values of its constants; texts that differ only in these have one skeleton."""
    return _spliced(source, [(tunable, "?") for tunable in found])


def _spliced(source: str, pieces: Sequence[tuple[Tunable, str]]) -> str:
    raw = source.encode("utf-8", "replace")
    for tunable, text in sorted(pieces, key=lambda piece: piece[0].start, reverse=True):
        raw = raw[: tunable.start] + text.encode() + raw[tunable.stop :]
    return raw.decode()


def _assignment(node: ast.stmt) -> tuple[str, ast.expr | None]:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id, node.value
    return "", None


def _literal(expression: ast.expr) -> Value | None:
    try:
        value: Any = ast.literal_eval(expression)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def _choices(name: str, value: Value | None, comment: str, cores: int) -> tuple[Value, ...]:
    """The values to try: those that the comment lists, or what makes sense for the name and kind."""
    listed = _LISTED.search(comment)
    if listed is not None:
        values = _listed(listed.group(1) or listed.group(2))
    elif isinstance(value, bool):
        values = [False, True]
    elif isinstance(value, int) and value >= 0:
        values = _integers(name, value, cores)
    else:
        return ()
    if value is not None and not any(_same(value, other) for other in values):
        values.append(value)
    if all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        values.sort(key=float)
    return tuple(values)


def _listed(text: str) -> list[Value]:
    """The values of a list in a comment; a word that is no literal is text."""
    values: list[Value] = []
    for word in text.split(","):
        try:
            parsed = ast.literal_eval(word.strip())
        except (ValueError, SyntaxError):
            parsed = word.strip()
        if isinstance(parsed, (bool, int, float, str)) and not any(_same(parsed, other) for other in values):
            values.append(parsed)
    return values


def _integers(name: str, value: int, cores: int) -> list[Value]:
    if value == 0:
        return [0, 1, 2, 4]  # 0 is off
    if "STAGES" in name:
        return list(range(1, 9))
    if "THREADS" in name and value <= cores:
        return [*_powers(1, cores), *([] if cores & (cores - 1) == 0 else [cores])]
    if "WARPS" in name:
        return _powers(1, 32)
    if value & (value - 1) == 0:
        return _powers(max(1, value >> 4), min(1 << 20, value << 4))
    return [size for size in (value // 4, value // 2, value, value * 2, value * 4) if size > 0]


def _powers(low: int, high: int) -> list[Value]:
    return [1 << exponent for exponent in range(low.bit_length() - 1, high.bit_length())]


def _same(one: Value, other: Value) -> bool:
    return type(one) is type(other) and one == other
