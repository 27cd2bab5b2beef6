"""The agent's manual, `program.md`, as sections that a prompt can hold one by one.

A section is what stands under a heading of level 2; a part of it, under a heading of level 3, is for
one backend: ``Triton``, ``CUDA C++``, ``C++ on a CPU``.  What stands before the first part is for all.
Lines within fences are never headings (``#pragma``, ``## `` in a listing).

Which sections matter when is the prompt's question.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path

from autokernel.errors import UsageError

__all__ = ["PARTS", "TIERS", "Manual", "architecture", "load"]

PARTS: Mapping[str, str] = {"triton": "Triton", "cuda": "CUDA C++", "cpp": "C++ on a CPU"}
"""The heading of each backend's part."""

TIERS = (1, 2, 3, 4, 5, 6)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_SM = re.compile(r"sm_(\d+)")
_FILE = Path(__file__).parents[1] / "program.md"


@dataclasses.dataclass(frozen=True)
class _Section:
    """A section: its text before the first part, and the parts by heading; all without headings."""

    common: str
    parts: Mapping[str, str]


class Manual:
    """The manual's sections by name.

    Args:
        text: The manual in Markdown.
    """

    def __init__(self, text: str) -> None:
        self._sections = {name: _section(body) for name, body in _split(text, "## ")[1].items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sections, in the manual's order."""
        return tuple(self._sections)

    def has(self, name: str) -> bool:
        """True if there is a section of that name."""
        return name in self._sections

    def section(self, name: str, backend: str | None = None) -> str:
        """A section with its heading.

        Args:
            name: As in `names`.
            backend: ``triton``, ``cuda`` or ``cpp``: of the parts for backends, only that one.  All
                parts when None.

        Raises:
            UsageError: There is no such section.
        """
        if name not in self._sections:
            raise UsageError(f"the manual has no section {name!r} (it has: {', '.join(self._sections)})")
        section = self._sections[name]
        wanted = None if backend is None else PARTS.get(backend, "")
        texts = [f"## {name}", section.common]
        for heading, body in section.parts.items():
            if wanted is None or heading not in PARTS.values() or heading == wanted:
                texts += [f"### {heading}", body]
        return "\n\n".join(text for text in texts if text)

    def tier(self, number: int) -> str:
        """The name of a tier's section.

        Raises:
            UsageError: There is no such tier.
        """
        found = next((name for name in self._sections if name.startswith(f"Tier {number}:")), None)
        if found is None:
            raise UsageError(f"the manual has no tier {number!r}; it has {TIERS[0]} to {TIERS[-1]}")
        return found


@functools.cache
def load() -> Manual:
    """The manual that comes with this package."""
    return Manual(_FILE.read_text(encoding="utf-8"))


def architecture(arch: str) -> str:
    """The manual's name of an architecture, or "" for one that it does not treat.

    Args:
        arch: What compilers are told (`autokernel.hardware.Device.arch`): ``sm_90``, ``gfx942``, or
            for a CPU its machine, such as ``x86_64 AVX512``.

    >>> architecture("sm_90"), architecture("sm_86"), architecture("gfx950"), architecture("x86_64 AVX2")
    ('Hopper', 'Ampere', 'CDNA4', 'CPU')
    """
    found = _SM.match(arch)
    if found is not None:
        number = int(found.group(1))
        known = {80: "Ampere", 86: "Ampere", 87: "Ampere", 89: "Ada", 90: "Hopper"}
        return known.get(number, "Blackwell" if number >= 100 else "")
    if arch.startswith("gfx"):
        return {"gfx94": "CDNA3", "gfx95": "CDNA4"}.get(arch[:5], "")
    return "CPU" if arch else ""


def _section(body: str) -> _Section:
    common, parts = _split(body, "### ")
    return _Section(common, parts)


def _split(text: str, mark: str) -> tuple[str, dict[str, str]]:
    """What stands before the first heading with that mark, and what stands under each, stripped."""
    before: list[str] = []
    found: dict[str, list[str]] = {}
    lines, fence = before, ""
    for line in text.splitlines():
        opening = _FENCE.match(line)
        if opening is not None:
            if not fence:
                fence = opening.group(1)
            elif line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        if not fence and line.startswith(mark):
            lines = found.setdefault(line[len(mark) :].strip(), [])
        else:
            lines.append(line)
    return "\n".join(before).strip(), {name: "\n".join(body).strip() for name, body in found.items()}
