"""Before and after, by Amdahl's law: what a model's operations take, and what kernels for them leave of it.

The after is a prediction: shares of the profile over speedups of the kernels, each measured by itself,

    speedup = 1 / (1 - sum of share * (1 - 1 / max(1, speedup of the kernel)))

because a model keeps what it has where that is faster.  What the model really gains is measured by
`autokernel check-model`.

Source: G. Amdahl, Validity of the single processor approach, AFIPS 1967.
Units: percent of the device time; speedup of the device time of one pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from autokernel.campaign_plan import CampaignPlan
from autokernel.errors import UsageError
from autokernel.experiment import best_of
from autokernel.measurement import Ratio
from autokernel.plots.style import (
    BLACK,
    GREY,
    PALETTE,
    PATTERNS,
    dress,
    escape,
    fit_legend,
    hatch,
    lighter,
    size_of,
    text_width,
)  # fmt: skip
from autokernel.plots.table import Table
from autokernel.runfolder import RunFolder

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport

__all__ = [
    "Part",
    "amdahl_change",
    "amdahl_table",
    "campaign_parts",
    "model_speedup",
    "profile_parts",
]

_MOST = 6  # parts that have a colour of their own; the rest is one part
_REST = "all others"
_ROWS = ("before", "after,<br>predicted")


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a model's time.

    Attributes:
        name: Of the operation or target.
        share: Of the device time before, 0 to 1.
        speedup: Of the kernel over what the model ran before; None if there is none.
    """

    name: str
    share: float
    speedup: Ratio | None = None

    @property
    def after(self) -> float:
        """What it takes afterwards, as a fraction of all the time before."""
        return self.share / max(1.0, self.speedup.value) if self.speedup else self.share


def campaign_parts(folder: str | Path) -> list[Part]:
    """The targets of a campaign, with the speedups of their best kernels over what the model runs.

    Raises:
        UsageError: The folder is no campaign.
        RunDamaged: It, or a run of it, cannot be read.
    """
    plan = CampaignPlan.load(Path(folder))
    parts = []
    for name, share in plan.shares.items():
        best = best_of(RunFolder(Path(folder) / "runs" / name).experiments)
        parts.append(Part(name, share, best.speedup if best is not None and best.passed else None))
    return parts


def profile_parts(report: ProfileReport, speedups: Mapping[str, Ratio | float | Part]) -> list[Part]:
    """The targets of a profile, some with a kernel.

    Args:
        report: From `autokernel.profile`, or loaded from a file.
        speedups: By name of a target, or of an operation for all its targets that a kernel can serve.  A
            `Part` (from `campaign_parts`) also says which share of the target the kernel serves.

    Raises:
        UsageError: A name that the profile does not have, or a target that is named twice.
    """
    found: dict[str, Ratio | float | Part] = {}
    for name, speedup in speedups.items():
        offered = tuple(target for target in report.operation(name) if target.offered)
        for target in offered or (report.target(name),):
            if target.name in found:
                raise UsageError(f"{target.name} is named twice; name the operation or the target")
            found[target.name] = speedup
    parts = []
    for target in report.targets:
        given = found.get(target.name)
        served = min(given.share, target.share) if isinstance(given, Part) else target.share
        ratio = given.speedup if isinstance(given, Part) else given
        ratio = Ratio(ratio, ratio, ratio) if isinstance(ratio, (int, float)) else ratio
        parts.append(Part(target.name, served, ratio))
        if target.share - served > 5e-4:
            parts.append(Part(f"{target.name}, other calls", target.share - served))
    return parts


def model_speedup(parts: Sequence[Part]) -> Ratio:
    """The predicted speedup of the model; the ends are with all kernels at the ends of their intervals."""
    ends = [
        1 / (1 - sum(part.share * (1 - 1 / max(1.0, getattr(part.speedup, end))) for part in parts if part.speedup))
        for end in ("value", "low", "high")
    ]
    return Ratio(*ends)


def amdahl_change(parts: Sequence[Part], *, title: str = "", columns: int | None = None) -> go.Figure:
    """Draw the time of one pass before and after: two bars, stacked by operation.

    Args:
        parts: Those with a kernel have a colour of their own, and the largest others; the rest is grey.
        title: Model and device, for example.
        columns: Width in columns of a page; the screen's when None.

    Raises:
        UsageError: No part has a kernel, or the shares add up to more than 1.
    """
    if not any(part.speedup for part in parts):
        raise UsageError("no part of the model has a kernel with a measured speedup, so before and after are the same")
    if sum(part.share for part in parts) > 1 + 1e-6:
        raise UsageError(
            f"the shares add up to {sum(part.share for part in parts):.3f}; they are fractions of one whole"
        )
    shown = _shown(parts)
    total = model_speedup(parts)
    size = size_of(columns)
    figure = go.Figure()
    dress(figure, "Device time of one pass (% of before)", "", title=title or ("" if columns else "Before and after"),
          columns=columns, height=(9.5 if columns else 24) * size.small)  # fmt: skip
    left = 0.0, 0.0
    for at, part in enumerate(shown):
        ends = left[0] + 100 * part.share, left[1] + 100 * part.after
        figure.add_trace(_segment(part, at))
        for row, start, end in zip(_ROWS, left, ends, strict=True):
            if (end - start) / 130 * size.width > 2.5 * size.small:
                figure.add_annotation(
                    x=(start + end) / 2, y=row, text=f"{end - start:.0f}", showarrow=False, font={"size": size.small},
                    bgcolor="rgba(255,255,255,0.8)", borderpad=1,
                )  # fmt: skip
        left = ends
    figure.add_annotation(
        x=left[1], y=_ROWS[1], text=f" {total.value:.2f}×", showarrow=False, xanchor="left", font={"size": size.small}
    )
    figure.update_layout(barmode="stack", legend={"traceorder": "normal"}, showlegend=True)
    figure.update_xaxes(range=[0, max(101.0, left[1] + (20 if columns == 1 else 12))], dtick=20)
    figure.update_yaxes(categoryorder="array", categoryarray=_ROWS[::-1], showgrid=False, ticks="")
    fit_legend(figure, columns, left=text_width(_ROWS, size.small))
    return figure


def _segment(part: Part, at: int) -> go.Bar:
    rest = part.name == _REST
    colour = lighter(GREY, 0.7) if rest else lighter(PALETTE[at % len(PALETTE)], 0.25)
    return go.Bar(
        y=_ROWS, x=[100 * part.share, 100 * part.after], orientation="h", name=escape(part.name), width=0.62,
        hovertemplate="%{x:.2f} %<extra></extra>",
        marker={
            "color": colour, "line": {"color": BLACK, "width": 0.6},
            "pattern": hatch("" if rest else PATTERNS[at % len(PATTERNS)], colour),
        },
    )  # fmt: skip


def _shown(parts: Sequence[Part]) -> list[Part]:
    """The parts with a kernel, the largest others, and one for all the rest of the time."""
    ranked = sorted(parts, key=lambda part: (part.speedup is None, -part.share))
    chosen = [part for at, part in enumerate(ranked) if at < _MOST]
    hidden = ranked[_MOST:]
    rest = max(0.0, 1 - sum(part.share for part in chosen))
    if rest > 5e-4:
        saved = sum(part.share - part.after for part in hidden)
        ratio = rest / (rest - saved) if saved else None
        chosen.append(Part(_REST, rest, Ratio(ratio, ratio, ratio) if ratio else None))
    return chosen


def amdahl_table(parts: Sequence[Part]) -> Table:
    """Share before, speedup and share after of each part, and the predicted speedup of the model."""
    rows: list[tuple[str | float | Ratio | None, ...]] = [
        (part.name, 100 * part.share, part.speedup, 100 * part.after) for part in parts
    ]
    rest = max(0.0, 1 - sum(part.share for part in parts))
    if rest > 5e-4:
        rows.append((_REST, 100 * rest, None, 100 * rest))
    total = model_speedup(parts)
    rows.append(("model (predicted)", 100.0, total, 100 / total.value))
    note = (
        "A slower kernel counts as 1: the model keeps what it has. The ends of the model's interval have all at theirs."
    )
    return Table(("part", "before (%)", "speedup", "after (% of before)"), tuple(rows), note)
