"""The offline agent: changes one declared constant at a time and climbs from the best kernel.

A kernel declares its tunable constants at the top of the module in capitals (``NUM_WARPS = 4``); a
comment ``# tune: 1, 2, 4`` beside one lists its values.  The agent tries the nearest values of each
constant of the best kernel, first further along the change that was kept last, then values further
away, then pairs of changes.  No text is judged twice, and nothing is kept in memory, so a run that
was interrupted goes on where it was.  Needs no key and no network.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import os
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from autokernel.agents.protocol import Context, Exhausted, Proposal
from autokernel.history import blob_id

__all__ = ["SearchAgent", "Tunable", "replace", "tunables"]

_TUNE = re.compile(r"#\s*tune:\s*(.+?)\s*$")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*$")
_NOT_TUNED = ("KERNEL_TYPE", "BACKEND")
_REACH = 3  # how many steps away from the best kernel's value are tried
Value = int | float | bool | str


@dataclasses.dataclass(frozen=True)
class Tunable:
    """A constant that may be changed.

    Attributes:
        name: Its name.
        value: Its value in the text.
        start: Where the value stands in the UTF-8 text, in bytes.
        stop: Where it ends.
        choices: All values to try, ``value`` among them, in order.
    """

    name: str
    value: Value
    start: int
    stop: int
    choices: tuple[Value, ...]

    def near(self, steps: int) -> tuple[Value, ...]:
        """The values ``steps`` up and down the list, those that there are."""
        here = self.choices.index(self.value)
        return tuple(self.choices[i] for i in (here + steps, here - steps) if 0 <= i < len(self.choices))


def tunables(source: str, *, cores: int | None = None) -> tuple[Tunable, ...]:
    """Find the tunable constants of a kernel's text; none if it is no Python.

    Args:
        source: The text.
        cores: Most threads to try; the number of this machine's when None.

    >>> [(one.name, one.value, one.choices) for one in tunables("NUM_STAGES = 2\\nBM = 64  # tune: 32, 64")]
    [('NUM_STAGES', 2, (1, 2, 3, 4, 5, 6, 7, 8)), ('BM', 64, (32, 64))]
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return ()
    lines = source.encode("utf-8", "replace").splitlines(keepends=True)
    starts = [0, *itertools.accumulate(len(line) for line in lines)]
    found = []
    for node in body:
        name, expression = _assignment(node)
        if not _NAME.match(name) or name in _NOT_TUNED or expression is None or expression.end_lineno is None:
            continue
        line = lines[expression.end_lineno - 1].decode("utf-8", "replace")
        value = _literal(expression)
        choices = _choices(name, value, line, cores or os.cpu_count() or 1)
        if value is None or len(choices) < 2:
            continue
        start = starts[expression.lineno - 1] + expression.col_offset
        stop = starts[expression.end_lineno - 1] + (expression.end_col_offset or 0)
        found.append(Tunable(name, value, start, stop, choices))
    return tuple(found)


def replace(source: str, changes: Sequence[tuple[Tunable, Value]]) -> str:
    """Return the text with other values for some of its constants.

    >>> (warps,) = tunables("NUM_WARPS = 4\\n")
    >>> replace("NUM_WARPS = 4\\n", [(warps, 8)])
    'NUM_WARPS = 8\\n'
    """
    raw = source.encode("utf-8", "replace")
    for tunable, value in sorted(changes, key=lambda change: change[0].start, reverse=True):
        raw = raw[: tunable.start] + repr(value).encode() + raw[tunable.stop :]
    return raw.decode()


class SearchAgent:
    """Hill climbing over the declared constants, the same for the same seed and history.

    Args:
        seed: Decides the order in which constants are tried.
    """

    name = "search"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def propose(self, context: Context) -> Proposal:
        """Return the next untried neighbour of the best kernel.

        Raises:
            Exhausted: It declares no constants, or all neighbours were judged.
        """
        found = list(tunables(context.kernel))
        if not found:
            raise Exhausted(
                "the best kernel declares no constants to change; write them at the top of the module in capitals, "
                "such as BLOCK_SIZE = 1024"
            )
        random.Random(self._seed).shuffle(found)
        momentum = _momentum(context, found)
        tried = set(context.judged)
        for changes in itertools.chain(momentum, _neighbours(found)):
            source = replace(context.kernel, changes)
            if blob_id(source) not in tried:
                return Proposal(source=source, hypothesis=_hypothesis(changes, context.best.number))
        names = ", ".join(tunable.name for tunable in found)
        raise Exhausted(f"every neighbour of experiment {context.best.number} was judged (constants: {names})")


def _neighbours(found: Sequence[Tunable]) -> Iterator[list[tuple[Tunable, Value]]]:
    """Sets of changes, nearest first: single steps, single leaps, pairs of single steps."""
    for steps in range(1, _REACH + 1):
        for tunable in found:
            for value in tunable.near(steps):
                yield [(tunable, value)]
    for one, two in itertools.combinations(found, 2):
        for first, second in itertools.product(one.near(1), two.near(1)):
            yield [(one, first), (two, second)]


def _momentum(context: Context, found: Sequence[Tunable]) -> Iterator[list[tuple[Tunable, Value]]]:
    """One more step in the direction of the change that made the best kernel."""
    stays = [one for one in context.experiments if one.decision in ("keep", "baseline")]
    if len(stays) < 2:
        return
    before = {one.name: one.value for one in tunables(context.source(stays[-2].number))}
    for tunable in found:
        old = before.get(tunable.name)
        if old is None or old == tunable.value or old not in tunable.choices:
            continue
        up = tunable.choices.index(tunable.value) > tunable.choices.index(old)
        beyond = tunable.choices.index(tunable.value) + (1 if up else -1)
        if 0 <= beyond < len(tunable.choices):
            yield [(tunable, tunable.choices[beyond])]


def _hypothesis(changes: Sequence[tuple[Tunable, Value]], best: int) -> str:
    words = [f"{tunable.name} {tunable.value} -> {value}" for tunable, value in changes]
    hints = {_HINTS[tunable.name] for tunable, _ in changes if tunable.name in _HINTS}
    return f"{', '.join(words)} on experiment {best}" + (f": {'; '.join(sorted(hints))}" if hints else "")


_HINTS = {
    "NUM_WARPS": "warps per program decide how a tile is shared out and how latency is hidden",
    "NUM_STAGES": "more load stages hide memory latency, at the price of shared memory",
    "NUM_THREADS": "threads share the rows, until memory bandwidth is used up",
    "LANES": "independent partial results let the compiler use vector registers",
    "UNROLL": "unrolling gives the processor independent work",
}


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


def _choices(name: str, value: Value | None, line: str, cores: int) -> tuple[Value, ...]:
    """The values to try: those of a ``# tune:`` comment, or what makes sense for the name and kind."""
    listed = _TUNE.search(line)
    if listed is not None:
        values = _listed(listed.group(1))
    elif isinstance(value, bool):
        values = [False, True]
    elif isinstance(value, int) and value > 0:
        values = _integers(name, value, cores)
    else:
        return ()
    if value is not None and not any(_same(value, other) for other in values):
        values.append(value)
    if all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        values.sort(key=float)
    return tuple(values)


def _listed(text: str) -> list[Value]:
    """The values of a ``# tune:`` comment; a word that is no literal is text."""
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
