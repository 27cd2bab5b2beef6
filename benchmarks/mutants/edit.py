"""A fault as data: which characters of a text are replaced by which."""

from __future__ import annotations

import dataclasses

__all__ = ["Edit", "Fault"]


@dataclasses.dataclass(frozen=True)
class Edit:
    """Replace the characters from ``start`` up to ``stop`` by ``text``."""

    start: int
    stop: int
    text: str


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault and its edits, which do not overlap."""

    kind: str
    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, kind: str, *edits: tuple[int, int, str]) -> Fault:
        return cls(kind, tuple(sorted((Edit(*edit) for edit in edits), key=lambda edit: edit.start)))

    def moved(self, offset: int) -> Fault:
        """The same fault in a text that holds this one from ``offset`` on."""
        edits = (Edit(edit.start + offset, edit.stop + offset, edit.text) for edit in self.edits)
        return Fault(self.kind, tuple(edits))

    def apply(self, text: str) -> str:
        """Return ``text`` with the fault in it."""
        for edit in reversed(self.edits):
            text = text[: edit.start] + edit.text + text[edit.stop :]
        return text

    def describe(self, text: str) -> tuple[int, str, str]:
        """Return the line number of the first edit, that line, and what becomes of it."""
        start = text.rfind("\n", 0, self.edits[0].start) + 1
        changed = self.apply(text)
        before, after = (" ".join(one[start:].partition("\n")[0].split()) for one in (text, changed))
        return text.count("\n", 0, start) + 1, before, after
