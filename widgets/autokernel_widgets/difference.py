"""Read a unified diff, and find the words that changed within its lines.

Plain data out: lines for a unified view, pairs of lines for a view side by side.  How they look is the
view's business.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence

from autokernel_widgets.highlight import Piece, highlight, plain

__all__ = ["Difference", "Line", "Span", "read_diff", "side_by_side"]

MOST_LINES = 3000
_LONGEST_LINE = 400  # longer ones are compared as a whole: finding words takes time squared
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclasses.dataclass(frozen=True)
class Span:
    """A piece of a line: its text, the class of its colour, and whether it is what changed in the line."""

    text: str
    kind: str = ""
    changed: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a diff.

    Attributes:
        kind: ``same``, ``removed``, ``added``, ``hunk`` (where it is) or ``note`` (what git says).
        old: Its number in the old text, or None.
        new: Its number in the new text, or None.
        spans: Its text in pieces.
    """

    kind: str
    old: int | None
    new: int | None
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(span.text for span in self.spans)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A diff with its counts.

    Attributes:
        lines: In order; at most `MOST_LINES`.
        added: How many lines were added.
        removed: How many lines were removed.
        left_out: How many lines of the diff are not in ``lines``.
    """

    lines: tuple[Line, ...]
    added: int
    removed: int
    left_out: int


def read_diff(text: str, old_source: str = "", new_source: str = "") -> Difference:
    """Read a unified diff of one file.

    Args:
        text: As git writes it; "" for equal texts.
        old_source: The old text, which is coloured as a whole; when it does not fit the diff, lines
            are shown without colours.
        new_source: The new text.
    """
    raw = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []
    old_lines, new_lines = highlight(old_source), highlight(new_source)
    lines: list[Line] = []
    old = new = 0
    for entry in raw:
        hunk = _HUNK.match(entry)
        if hunk:
            old, new = int(hunk.group(1)), int(hunk.group(2))
            lines.append(Line("hunk", None, None, (Span(f"line {new}{hunk.group(3)}"),)))
        elif not old and not new:
            if entry.startswith("Binary files"):
                lines.append(Line("note", None, None, (Span(entry),)))
        elif entry.startswith("\\"):
            lines.append(Line("note", None, None, (Span(entry[2:]),)))
        elif entry.startswith("-"):
            lines.append(Line("removed", old, None, _spans(entry[1:], old_lines, old)))
            old += 1
        elif entry.startswith("+"):
            lines.append(Line("added", None, new, _spans(entry[1:], new_lines, new)))
            new += 1
        else:
            lines.append(Line("same", old, new, _spans(entry[1:], new_lines, new)))
            old, new = old + 1, new + 1
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("added", "removed"))
    shown = _mark_words(lines[:MOST_LINES])
    return Difference(tuple(shown), added, removed, len(lines) - len(shown))


def side_by_side(lines: Sequence[Line]) -> list[tuple[Line | None, Line | None]]:
    """Pairs of old and new lines; a hunk or a note stands on both sides."""
    pairs: list[tuple[Line | None, Line | None]] = []
    for begin, end in _blocks(lines):
        removed = [line for line in lines[begin:end] if line.kind == "removed"]
        added = [line for line in lines[begin:end] if line.kind == "added"]
        if not removed and not added:
            pairs += [(line, line) for line in lines[begin:end]]
            continue
        for index in range(max(len(removed), len(added))):
            pairs.append(
                (removed[index] if index < len(removed) else None, added[index] if index < len(added) else None)
            )
    return pairs


def _spans(line: str, coloured: Sequence[Sequence[Piece]], number: int) -> tuple[Span, ...]:
    pieces: Sequence[Piece] = coloured[number - 1] if 0 < number <= len(coloured) else ()
    if "".join(text for text, _ in pieces) != line:
        pieces = (plain(line),)
    return tuple(Span(text, kind) for text, kind in pieces if text)


def _blocks(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Runs of changed lines, and single other lines, as index ranges that cover everything."""
    blocks: list[tuple[int, int]] = []
    index = 0
    while index < len(lines):
        end = index
        while end < len(lines) and lines[end].kind == "removed":
            end += 1
        while end < len(lines) and lines[end].kind == "added":
            end += 1
        blocks.append((index, max(end, index + 1)))
        index = blocks[-1][1]
    return blocks


def _mark_words(lines: list[Line]) -> list[Line]:
    """Mark what changed in lines that stand for each other: the n-th removed and the n-th added of a block."""
    marked = list(lines)
    for begin, end in _blocks(lines):
        removed = [index for index in range(begin, end) if lines[index].kind == "removed"]
        added = [index for index in range(begin, end) if lines[index].kind == "added"]
        for old, new in zip(removed, added, strict=False):
            before, after = _changed_parts(lines[old].text, lines[new].text)
            marked[old] = dataclasses.replace(lines[old], spans=_cut(lines[old].spans, before))
            marked[new] = dataclasses.replace(lines[new], spans=_cut(lines[new].spans, after))
    return marked


def _changed_parts(old: str, new: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Where two lines differ, as ranges of characters; nowhere if they have little in common."""
    if max(len(old), len(new)) > _LONGEST_LINE:
        return [], []
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    same = sum(len(word) for tag, i, j, _, _ in matcher.get_opcodes() if tag == "equal" for word in old_words[i:j])
    if 2 * same < 0.4 * (len(old) + len(new)):
        return [], []
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            before.append((len("".join(old_words[:i])), len("".join(old_words[:j]))))
            after.append((len("".join(new_words[:k])), len("".join(new_words[:m]))))
    return before, after


def _cut(spans: Sequence[Span], ranges: Sequence[tuple[int, int]]) -> tuple[Span, ...]:
    """The spans, cut where a range begins or ends, with what lies in a range marked as changed."""
    result: list[Span] = []
    position = 0
    for span in spans:
        end = position + len(span.text)
        edges = sorted({position, end, *(edge for pair in ranges for edge in pair if position < edge < end)})
        for left, right in zip(edges, edges[1:], strict=False):
            inside = any(begin <= left and right <= stop for begin, stop in ranges)
            result.append(Span(span.text[left - position : right - position], span.kind, inside))
        position = end
    return tuple(result)
