"""Where kernels stand in a model, and how often they ran: plain data and a table of text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ["Gap", "PlaceReport", "Report"]

_SHOWN = 3  # calls of a gap


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceReport:
    """One place.

    Attributes:
        path: The module's path in the model; "" is the model itself.
        operation: The operation, or "" if no kernel can stand here.
        what: The function's name, or the module's class.
        kernel_calls: How often each kernel ran, by its name.
        original_calls: How often the original ran, by reason.
    """

    path: str
    operation: str
    what: str
    kernel_calls: Mapping[str, int]
    original_calls: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gap:
    """What a model asks of a kernel that ran nowhere, beside what was verified about it.

    Attributes:
        kernel: Its name.
        operation: What it computes.
        seen: Sizes and dtype of the model's calls, each in words, such as ``M=16 N=32 float32``.
        nearest: The verified ones that are most like the first of them.
    """

    kernel: str
    operation: str
    seen: tuple[str, ...]
    nearest: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.seen) - _SHOWN} more" if len(self.seen) > _SHOWN else ""
        seen = f"the model calls {self.operation} with {'; '.join(self.seen[:_SHOWN])}{more}"
        return f"{self.kernel}: {seen}; verified, the nearest: {'; '.join(self.nearest) or 'nothing'}"

    @property
    def command(self) -> str:
        """What makes a run whose kernels are verified and timed on the model's calls."""
        _, _, dtype = self.seen[0].rpartition(" ")
        shapes = [one.rpartition(" ")[0].replace(" ", ",") for one in self.seen if one.endswith(f" {dtype}")]
        words = " ".join(f"--shape {shape}" for shape in shapes[:_SHOWN])
        return f"autokernel new {self.operation} --dtype {dtype} {words}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All places of a model.

    Attributes:
        places: Where a kernel may run; counts are of eager calls.
        refused: Calls seen when the model was traced that no kernel may take: (path, function) and why.
        compiled_calls: How often each kernel ran inside ``torch.compile``.
        unused: Kernels for which there is no place.
        notes: What a reader must know.
        gaps: Of kernels that ran nowhere, though the model has calls of their operation.
    """

    places: tuple[PlaceReport, ...]
    refused: Mapping[tuple[str, str], str]
    compiled_calls: Mapping[str, int]
    unused: tuple[str, ...]
    notes: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def kernel_calls(self) -> int:
        """How often a kernel ran, inside ``torch.compile`` too."""
        return sum(sum(place.kernel_calls.values()) for place in self.places) + sum(self.compiled_calls.values())

    @property
    def original_calls(self) -> int:
        """How often the original ran where a kernel stands, outside of ``torch.compile``."""
        return sum(sum(place.original_calls.values()) for place in self.places)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        return {
            "kernel_calls": self.kernel_calls,
            "original_calls": self.original_calls,
            "places": [dataclasses.asdict(place) for place in self.places],
            "refused": [
                {"path": path, "what": what, "reason": reason} for (path, what), reason in self.refused.items()
            ],
            "compiled_calls": dict(self.compiled_calls),
            "unused": list(self.unused),
            "notes": list(self.notes),
            "gaps": [dataclasses.asdict(gap) for gap in self.gaps],
        }

    def __str__(self) -> str:
        lines = [f"kernels ran {self.kernel_calls} times, the original {self.original_calls} times where they stand"]
        lines += _grouped(self.places)
        lines += [f"  in torch.compile: {name} ran {count} times" for name, count in self.compiled_calls.items()]
        reasons = Counter((what, reason) for (_path, what), reason in self.refused.items())
        lines += [f"  not replaced: {what} in {count} modules: {reason}" for (what, reason), count in reasons.items()]
        lines += [f"  no place for {name}" for name in self.unused]
        lines += [f"  {gap}" for gap in self.gaps]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def _grouped(places: tuple[PlaceReport, ...]) -> list[str]:
    """One line for all places of a kind: a model has dozens that differ by the layer only."""
    groups: dict[tuple[str, str], list[PlaceReport]] = {}
    for place in places:
        groups.setdefault((place.operation, place.what), []).append(place)
    lines = []
    for (operation, what), members in groups.items():
        first = members[0].path or "the model itself"
        where = first if len(members) == 1 else f"{first} and {len(members) - 1} more"
        lines.append(f"  {operation}: {what} in {where}")
        for kind in ("kernel_calls", "original_calls"):
            total: Counter[str] = Counter()
            for place in members:
                total.update(getattr(place, kind))
            who = "" if kind == "kernel_calls" else "original: "
            lines += [f"    {count:>6} x {who}{name}" for name, count in total.items()]
    return lines
