"""Small pictures as trees of SVG elements: they need no plotly, no browser and no widget front end.

Colours come from the style sheet by class, so they follow the theme.  Units: microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autokernel.experiment import Experiment
from autokernel.measurement import CaseTiming, Contestant
from autokernel_widgets.markup import Node, classes, node
from autokernel_widgets.outcomes import OUTCOMES, microseconds, outcome_of, times

__all__ = ["distributions", "progress", "ticks"]

_ROLES = {"candidate": "this kernel", "incumbent": "the best before", "pytorch": "PyTorch", "compile": "torch.compile"}
_WIDTH, _LEFT, _RIGHT = 720.0, 130.0, 24.0
_MOST_POINTS = 200


def distributions(case: CaseTiming) -> Node:
    """The samples of each contestant of a timing case on one axis: ticks, the middle 60 %, the median.

    The axis ends at 1.5 times the highest 0.8 quantile; how many samples lie beyond is said.
    """
    contestants = [case.contestants[name] for name in _ROLES if name in case.contestants]
    low = min(min(one.samples_us, default=one.low_us) for one in contestants)
    high = 1.5 * max(one.high_us for one in contestants)
    high = min(high, max(max(one.samples_us, default=one.high_us) for one in contestants))
    high = max(high, low * 1.001 + 1e-9)
    margin = 0.04 * (high - low)
    low, high = max(0.0, low - margin), high + margin

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    bottom = 38.0 * len(contestants)
    rows = [_row(one, 38.0 * index, x, high) for index, one in enumerate(contestants)]
    axis = [node("line", class_="ak-axis", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=bottom, y2=bottom)]
    for value in ticks(low, high):
        axis.append(node("line", class_="ak-axis", x1=_r(x(value)), x2=_r(x(value)), y1=bottom, y2=bottom + 4))
        axis.append(
            node(
                "text",
                f"{value:,g}" if value < 1000 else f"{value:,.0f}",
                x=_r(x(value)),
                y=bottom + 17,
                text_anchor="middle",
            )
        )
    axis.append(node("text", "latency of one call (µs)", x=_WIDTH - _RIGHT, y=bottom + 34, text_anchor="end"))
    said = "; ".join(f"{_ROLES[one.name]} {microseconds(one.latency_us)} µs" for one in contestants)
    return node(
        "svg", node("title", f"Latency on {case.label}: {said}"), *rows, *axis,
        viewBox=f"0 0 {_WIDTH:g} {bottom + 40:g}", role="img", aria_label=f"Median latency: {said}", class_="ak-sketch",
    )  # fmt: skip


def _row(one: Contestant, top: float, x: Any, high: float) -> Node:
    shown = [sample for sample in one.samples_us if sample <= high]
    step = max(1, len(shown) // _MOST_POINTS)
    marks = [
        node("line", class_="ak-sample", x1=_r(x(sample)), x2=_r(x(sample)), y1=top + 8, y2=top + 30)
        for sample in sorted(shown)[::step]
    ]
    beyond = len(one.samples_us) - len(shown)
    left, right = x(one.low_us), x(min(one.high_us, high))
    return node(
        "g",
        node("text", _ROLES[one.name], x=_LEFT - 10, y=top + 24, text_anchor="end"),
        *marks,
        node("rect", class_="ak-box", x=_r(left), y=top + 11, width=_r(max(1.0, right - left)), height=16),
        node("line", class_="ak-median", x1=_r(x(one.latency_us)), x2=_r(x(one.latency_us)), y1=top + 6, y2=top + 32),
        node("text", f"+{beyond} beyond", x=_WIDTH - _RIGHT, y=top + 8, text_anchor="end", class_="ak-small")
        if beyond
        else None,
        class_=f"ak-role-{one.name}",
    )


def progress(experiments: Sequence[Experiment]) -> Node:
    """Speedup over PyTorch of each experiment, and the kernel on the branch as a step line."""
    timed = [one for one in experiments if one.speedup is not None]
    last = max((one.number for one in experiments), default=1) or 1
    values = [one.speedup.value for one in timed if one.speedup is not None]
    top = 1.08 * max([1.0, *values])
    height, bottom = 260.0, 212.0

    def x(number: float) -> float:
        return 48.0 + number / last * (_WIDTH - 48.0 - _RIGHT)

    def y(value: float) -> float:
        return bottom - value / top * (bottom - 10.0)

    grid: list[Node] = []
    for value in ticks(0.0, top, 5):
        grid.append(node("line", class_="ak-grid", x1=48, x2=_WIDTH - _RIGHT, y1=_r(y(value)), y2=_r(y(value))))
        grid.append(node("text", f"{value:g}×", x=42, y=_r(y(value) + 4), text_anchor="end"))
    grid.append(node("line", class_="ak-dash", x1=48, x2=_WIDTH - _RIGHT, y1=_r(y(1)), y2=_r(y(1))))
    for value in ticks(0.0, float(last), 8):
        if value == int(value):
            grid.append(node("text", f"{value:g}", x=_r(x(value)), y=height - 14, text_anchor="middle"))
    points = [_point(one, x(one.number), y(one.speedup.value) if one.speedup else bottom + 16) for one in experiments]
    said = f"Speedup over PyTorch of {len(experiments)} experiments"
    return node(
        "svg", node("title", said), *grid, _steps(timed, x, y, last), *points,
        viewBox=f"0 0 {_WIDTH:g} {height:g}", role="img", aria_label=said, class_="ak-sketch",
    )  # fmt: skip


def _steps(timed: Sequence[Experiment], x: Any, y: Any, last: int) -> Node | None:
    best = [one for one in timed if one.decision in ("baseline", "keep") and one.speedup is not None]
    corners: list[str] = []
    for one, following in zip(best, [*best[1:], None], strict=True):
        level = y(one.speedup.value) if one.speedup else 0.0
        end = x(following.number if following else last)
        corners += [f"{_r(x(one.number))},{_r(level)}", f"{_r(end)},{_r(level)}"]
    return node("polyline", points=" ".join(corners), class_="ak-best") if corners else None


def _point(one: Experiment, x: float, y: float) -> Node:
    outcome = outcome_of(one)
    what = f"experiment {one.number}: {outcome.label} {times(one.speedup)}".strip()
    return node(
        "text", outcome.mark, node("title", what),
        x=_r(x), y=_r(y + 4), text_anchor="middle", class_=classes("ak-point", f"ak-of-{outcome.key}"),
    )  # fmt: skip


def legend() -> Node:
    """What the marks of `progress` mean."""
    entries = [
        node("span", node("span", one.mark, class_=f"ak-of-{one.key}"), f" {one.label}  ") for one in OUTCOMES.values()
    ]
    return node("p", *entries, class_="ak-legend")


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from ``low`` to ``high``."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low] if math.isfinite(low) else []
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    first = math.ceil(low / step)
    return [round(index * step, 12) for index in range(first, int(high / step) + 1)]


def _r(value: float) -> str:
    return f"{value:.1f}"
