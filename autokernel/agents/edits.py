"""Read a language model's answer: a whole file, or edits of one; nothing is guessed.

An answer holds a line ``HYPOTHESIS: ...`` and then either one fenced block with a whole kernel.py, or
one or more edits::

    <<<<<<< SEARCH
    lines that stand in the file exactly once
    =======
    lines that take their place
    >>>>>>> REPLACE

A fence is closed by a line of the same character, at least as long as the one that opened it
(CommonMark 0.31, section 4.5), so a kernel may hold shorter ones.  A line ``BASE: experiment 7`` says
that the edits are of that experiment's kernel; otherwise they are of the best.  Lines ``CANDIDATE 1``,
``CANDIDATE 2`` divide an answer with several candidates.

The text is parsed, never executed.  What is done about an answer that cannot be used is the agent's
question.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autokernel.errors import AutokernelError
from autokernel.plaintext import clean, one_line

__all__ = ["Candidate", "Edit", "UnusableAnswer", "applied", "objection", "parse"]

_MAX_CHARACTERS = 400_000
_SEARCH, _DIVIDER, _REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_HYPOTHESIS = re.compile(r"[*_#\s]*HYPOTHESIS\s*[*_]*\s*:\s*[*_]*\s*(.*)", re.IGNORECASE)
_BASE = re.compile(r"[*_\s]*BASE\s*[*_]*\s*:\s*[*_]*\s*(?:experiment\s*)?(\d{1,9})[*_\s]*$", re.IGNORECASE)
_CANDIDATE = re.compile(r"[*_#\s]*CANDIDATE\s+(\d{1,2})\s*[*_:]*\s*$", re.IGNORECASE)
_KERNEL_FN = re.compile(r"^(?:(?:async\s+)?def\s+kernel_fn\b|kernel_fn\s*[:=])", re.MULTILINE)


class UnusableAnswer(AutokernelError):
    """An answer that holds no candidate; the message tells the model what to do."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """Lines to be found, exactly once, and the lines that take their place."""

    search: str
    replace: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """What an answer proposes.

    Attributes:
        hypothesis: What the change should bring, on one line.
        source: The whole text of a kernel.py, or None when edits are given.
        edits: In the order in which they are applied.
        base: The experiment whose kernel the edits are of; None for the best.
    """

    hypothesis: str
    source: str | None = None
    edits: tuple[Edit, ...] = ()
    base: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The candidate as JSON-ready data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        """Read back what `to_dict` made.

        Raises:
            TypeError: It is something else.
        """
        edits = tuple(Edit(**edit) for edit in data.get("edits", ()))
        return cls(**{**data, "edits": edits})


def parse(answer: str, *, most: int = 1) -> list[Candidate]:
    """Read an answer.

    Args:
        answer: What the model wrote.
        most: How many candidates were asked for; more are left out.

    Raises:
        UnusableAnswer: It holds no candidate, or it is not clear which.
    """
    if len(answer) > _MAX_CHARACTERS:
        raise UnusableAnswer(f"the answer has {len(answer)} characters, over the limit of {_MAX_CHARACTERS}")
    lines = _THOUGHT.sub("", answer).replace("\r\n", "\n").split("\n")
    return [_candidate(part) for part in _divided(lines)[:most]]


def applied(candidate: Candidate, kernel: str) -> str:
    """The whole text that a candidate proposes.

    Args:
        candidate: As parsed.
        kernel: The text that its edits are of.

    Lines are compared as a prompt shows them (`autokernel.plaintext.clean`): with spaces for tabs.

    Raises:
        UnusableAnswer: The text of an edit is not found, or found more than once.
    """
    if candidate.source is not None:
        return candidate.source
    lines = kernel.split("\n")
    for number, edit in enumerate(candidate.edits, 1):
        shown, wanted = ([clean(line) for line in text] for text in (lines, edit.search.split("\n")))
        places = [at for at in range(len(shown) - len(wanted) + 1) if shown[at : at + len(wanted)] == wanted]
        if len(places) != 1:
            raise UnusableAnswer(f"edit {number} of {len(candidate.edits)}: {_misfit(wanted, shown, places)}")
        lines[places[0] : places[0] + len(wanted)] = edit.replace.split("\n") if edit.replace else []
    return "\n".join(lines)


def objection(source: str, *, operation: str, backend: str) -> str:
    """Why a text cannot be a kernel.py of this run, whatever it computes; "" if it can.

    Args:
        source: The text; it is parsed, never executed.
        operation: What its ``KERNEL_TYPE`` must be, if it states one.
        backend: What its ``BACKEND`` must be (``triton`` when it states none).
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        shown = one_line(error.text or "", limit=120)
        return f"the file is no Python: line {error.lineno}: {error.msg}: {shown}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the file is no Python: {one_line(error)}"
    stated = {"BACKEND": "triton", **_constants(body)}
    if "kernel_fn" not in _defined(body):
        return "the file defines no kernel_fn at its top level; hand in the whole file, not a part of it"
    if stated.get("KERNEL_TYPE", operation) != operation:
        return f"the file says KERNEL_TYPE = {stated['KERNEL_TYPE']!r}; this run is for {operation!r}"
    if stated["BACKEND"] != backend:
        return f"the file says BACKEND = {stated['BACKEND']!r} (missing means 'triton'); this run is for {backend!r}"
    return ""


def _divided(lines: Sequence[str]) -> list[list[str]]:
    """The lines of each candidate; headings within fences and edits do not divide."""
    found: list[list[str]] = [[]]
    fence, editing = "", False
    for line in lines:
        editing = line.rstrip() == _SEARCH or (editing and line.rstrip() != _REPLACE)
        fence = fence if editing else _fence_after(fence, line)
        if not fence and not editing and _CANDIDATE.match(line):
            found.append([])
        else:
            found[-1].append(line)
    return [one for one in found[1:] if any(map(str.strip, one))] or [found[0]]


def _fence_after(fence: str, line: str) -> str:
    """The fence that is open after a line, or ""."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found.group(1)
    closes = found.group(1).startswith(fence) and not found.group(2).strip()
    return "" if closes else fence


def _candidate(lines: Sequence[str]) -> Candidate:
    prose, blocks, edits = _pieces(lines)
    files = [block for block in blocks if _KERNEL_FN.search(block)]
    if edits and files:
        raise UnusableAnswer("the answer holds a whole file and edits; give one of the two")
    if len(files) > 1:
        raise UnusableAnswer(f"{len(files)} blocks define kernel_fn, so it is not clear which is meant; give one")
    if not files and not edits:
        held = f"{len(blocks)} blocks, none of which defines kernel_fn" if blocks else "prose only"
        raise UnusableAnswer(
            f"the answer holds no kernel.py ({held}); give the whole file in one fenced block, or edits"
        )
    hypothesis = _hypothesis(prose)
    if files:
        return Candidate(hypothesis=hypothesis, source=files[0])
    bases = [int(found.group(1)) for found in map(_BASE.match, prose) if found]
    return Candidate(hypothesis=hypothesis, edits=tuple(edits), base=bases[0] if bases else None)


def _pieces(lines: Sequence[str]) -> tuple[list[str], list[str], list[Edit]]:
    """The lines outside of fences and edits, the fenced blocks, and the edits."""
    prose: list[str] = []
    blocks: list[str] = []
    edits: list[Edit] = []
    fence, block, at = "", [""], 0
    while at < len(lines):
        line = lines[at]
        if line.rstrip() == _SEARCH:
            edit, at = _edit(lines, at + 1, len(edits) + 1)
            edits.append(edit)
            continue
        after = _fence_after(fence, line)
        if fence and not after:
            blocks.append("\n".join(block) + "\n")
        elif fence:
            block.append(line)
        elif after:
            block = []
        else:
            prose.append(line)
        fence, at = after, at + 1
    if fence:
        raise UnusableAnswer("the last block is not closed, so the answer was cut off; give shorter text, or edits")
    return prose, [block for block in blocks if block.strip()], edits


def _edit(lines: Sequence[str], start: int, number: int) -> tuple[Edit, int]:
    """The edit whose SEARCH text begins at ``start``, and where the lines go on."""
    parts: list[list[str]] = [[]]
    for at in range(start, len(lines)):
        line = lines[at]
        if line.rstrip() == _DIVIDER and len(parts) == 1:
            parts.append([])
        elif line.rstrip() == _REPLACE and len(parts) == 2:
            search, replace = ("\n".join(part) for part in parts)
            if not search.strip():
                raise UnusableAnswer(f"edit {number} has an empty SEARCH text; give the lines that are to be replaced")
            if search == replace:
                raise UnusableAnswer(f"edit {number} replaces its text by itself")
            return Edit(search, replace), at + 1
        elif line.rstrip() in (_SEARCH, _REPLACE):
            raise UnusableAnswer(f"edit {number} is not well formed: {line.strip()!r} comes too early")
        else:
            parts[-1].append(line)
    raise UnusableAnswer(f"edit {number} is not closed by {_REPLACE!r}, so the answer was cut off")


def _hypothesis(prose: Sequence[str]) -> str:
    """The text after HYPOTHESIS up to an empty line; else the first line of prose."""
    for at, line in enumerate(prose):
        found = _HYPOTHESIS.match(line)
        if found is None:
            continue
        words = [found.group(1)]
        for following in prose[at + 1 :]:
            if words[-1] and (not following.strip() or _BASE.match(following)):
                break
            words.append(following.strip())
        return one_line(" ".join(words), limit=500) or "no hypothesis given"
    first = next((line for line in prose if line.strip() and not _BASE.match(line)), "")
    return one_line(first.strip("#* "), limit=500) or "no hypothesis given"


def _misfit(wanted: Sequence[str], lines: Sequence[str], places: Sequence[int]) -> str:
    """Why the lines of an edit do not fit."""
    if places:
        at = ", ".join(str(place + 1) for place in places)
        return f"its SEARCH text stands {len(places)} times in the file (lines {at}); add lines until it is unique"
    bare = [line.split() for line in lines]
    if any(bare[at : at + len(wanted)] == [line.split() for line in wanted] for at in range(len(bare))):
        return "its SEARCH text stands in the file with other white space; copy the lines exactly"
    missing = next((line for line in wanted if line not in lines), wanted[0])
    close = difflib.get_close_matches(missing, lines, n=1, cutoff=0.5)
    hint = f"; the file has {close[0]!r}" if close and close[0] != missing else ""
    return f"its SEARCH text is not in the file: {one_line(missing, limit=160)!r} is the first line to look at{hint}"


def _constants(body: Sequence[ast.stmt]) -> dict[str, str]:
    """The texts that are assigned to names at the top level; the last of a name counts."""
    found: dict[str, str] = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return found


def _defined(body: Sequence[ast.stmt]) -> set[str]:
    """The names that are bound at the top level, within ``if`` and ``try`` too."""
    names: set[str] = set()
    for node in body:
        for inner in ast.walk(node) if isinstance(node, (ast.If, ast.Try, ast.With)) else (node,):
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(inner.name)
            elif isinstance(inner, (ast.Assign, ast.AnnAssign)):
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(inner, (ast.Import, ast.ImportFrom)):
                names |= {(alias.asname or alias.name).split(".")[0] for alias in inner.names}
    return names
