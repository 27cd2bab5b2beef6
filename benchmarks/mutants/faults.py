"""The mutants of a starter: its text with one small fault each.

A fault is a replacement of a few characters, found in the tokens of C++ text (`cpp_faults`) and in
the syntax tree of Python text (`python_faults`), never by executing anything.  The same text always
has the same mutants in the same order.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import random
import re
from collections.abc import Iterator, Sequence

from benchmarks.mutants import cpp_faults, python_faults
from benchmarks.mutants.edit import Fault

__all__ = ["Mutant", "live", "mutants", "sample"]

# Constants that let every line of a starter run on the verifier's sizes: with LANES = 1 the loops over a row's rest
# have nothing to do, and 1024 rows at a time are all rows at once in the interpreter.
_LIVE: dict[str, dict[str, int | bool]] = {
    "cpp": {"LANES": 16, "TILE_M": 4, "TILE_N": 32, "PAIRS": 16, "STREAM": True, "PREFETCH_ROWS": 1, "PREFETCH": 64},
    "triton": {"BLOCK_ROWS": 64},
    "cuda": {},
}
_NATIVE_TEXT = re.compile(r'^(CPP_SRC|CUDA_SRC) = r"""\n(.*?)^"""', re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One starter with one fault.

    Attributes:
        operation: Name of the operation.
        backend: ``cpp``, ``cuda`` or ``triton``.
        fault: Kind of the fault, such as ``bound_inclusive``.
        line: Line of the starter's text where it begins, from 1.
        before: That line as it was, without its margins.
        after: What the changed text makes of it.
        source: The whole text of the mutant.
    """

    operation: str
    backend: str
    fault: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits that follow from the text."""
        return hashlib.sha256(f"{self.operation}\n{self.backend}\n{self.source}".encode()).hexdigest()[:12]


def live(source: str, backend: str) -> str:
    """Return a starter's text with those constants that let all of its lines run."""
    for name, value in _LIVE[backend].items():
        source = re.sub(rf"^{name} = \w+", f"{name} = {value}", source, flags=re.MULTILINE)
    return source


def mutants(operation: str, backend: str, source: str) -> list[Mutant]:
    """Return all mutants of a starter's text, each with another text and each valid Python."""
    found: dict[str, Mutant] = {}
    for fault in _faults(source):
        text = fault.apply(source)
        if text == source or text in found or not _is_python(text):
            continue
        line, before, after = fault.describe(source)
        found[text] = Mutant(operation, backend, fault.kind, line, before, after, text)
    return list(found.values())


def sample(found: Sequence[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """Return ``count`` of the mutants, or all, in a random order; a larger sample begins with a smaller one."""
    order = random.Random(seed).sample(found, len(found))
    return order if count is None else order[:count]


def _faults(source: str) -> Iterator[Fault]:
    native = _NATIVE_TEXT.search(source)
    if native is not None:
        for fault in cpp_faults.faults(native.group(2)):
            yield fault.moved(native.start(2))
    yield from python_faults.faults(source)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
