"""Kernels under the roofline of their device.

Units: TFLOP/s, GB/s (10^9 bytes), FLOP/byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.measurement import CaseTiming
from autokernel.plots.series import Series
from autokernel.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Size,
    dress,
    escape,
    fit_legend,
)  # fmt: skip
from autokernel.plots.table import Table

__all__ = ["RooflinePoint", "roofline", "roofline_point", "roofline_table", "series_points"]

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "star")
_COLOURS = (GREEN, BLUE, ORANGE, PURPLE, VERMILION, SKY)


@dataclasses.dataclass(frozen=True)
class RooflinePoint:
    """A kernel's place on the roofline: FLOP per byte moved at the least, and rate in TFLOP/s."""

    label: str
    flop_per_byte: float
    tflop_per_s: float
    group: str = ""  # points of one group share colour and shape
    start: bool = False  # a starting kernel is drawn open


def roofline_point(case: CaseTiming, label: str = "candidate") -> RooflinePoint | None:
    """The candidate's place on the roofline, or None if the spec gives no FLOP or no bytes."""
    if not case.tflop_per_s or not case.gb_per_s:
        return None
    return RooflinePoint(label, case.tflop_per_s * 1e3 / case.gb_per_s, case.tflop_per_s)


def series_points(series: Sequence[Series]) -> list[RooflinePoint]:
    """The starting and the best kernel of each run, on its first timing case, where its records have the figures."""
    points = []
    for one in series:
        kept = one.kept
        chosen = {"start": kept[0], "best": kept[-1]} if len(kept) > 1 else {"best": kept[0]} if kept else {}
        for name, experiment in chosen.items():
            measurement = one.measurement(experiment.number)
            found = roofline_point(measurement.cases[0], f"{one.label}, {name}") if measurement else None
            if found is not None:
                points.append(dataclasses.replace(found, group=one.label, start=name == "start"))
    return points


def roofline(
    points: Sequence[RooflinePoint],
    *,
    gb_per_s: float,
    peak_tflop_per_s: float,
    device: str = "",
    title: str = "",
    columns: int | None = None,
) -> go.Figure:
    """Draw ``min(peak, intensity * bandwidth)`` on logarithmic axes, and the kernels below it.

    Args:
        points: Kernels on the same device and dtype.
        gb_per_s: Bandwidth of the device's memory, above 0; the measured figure by preference.
        peak_tflop_per_s: Peak rate for the dtype, above 0; the measured figure by preference.
        device: Its name, for the title.
        title: In place of the device's name.
        columns: Width in columns of a page; the screen's when None.

    Raises:
        UsageError: Bandwidth or peak is not above 0.

    Source: S. Williams, A. Waterman and D. Patterson, Roofline, CACM 52(4), 2009.
    """
    if gb_per_s <= 0 or peak_tflop_per_s <= 0:
        raise UsageError(f"a roofline needs a bandwidth and a peak above 0, got {gb_per_s} and {peak_tflop_per_s}")
    ridge = peak_tflop_per_s * 1e3 / gb_per_s
    intensities = [point.flop_per_byte for point in points] + [ridge]
    left, right = min(intensities) / 4, max(intensities) * 4
    figure = go.Figure()
    heading = title or ("" if columns else f"Roofline of {escape(device)}" if device else "Roofline")
    size = dress(figure, "Arithmetic intensity (FLOP/byte)", "Rate (TFLOP/s)", title=heading, columns=columns)
    figure.add_trace(
        go.Scatter(
            x=[left, ridge, right], y=[left * gb_per_s / 1e3, peak_tflop_per_s, peak_tflop_per_s], mode="lines",
            line={"color": BLACK, "width": size.line}, hoverinfo="skip",
            name=f"roofline: {gb_per_s:,.0f} GB/s, {peak_tflop_per_s:,.3g} TFLOP/s",
        )
    )  # fmt: skip
    groups = list(dict.fromkeys(point.group or point.label for point in points))
    for point in points:
        at = groups.index(point.group or point.label)
        share = point.tflop_per_s / min(peak_tflop_per_s, point.flop_per_byte * gb_per_s / 1e3)
        figure.add_trace(_kernel(point, at, share, size))
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(type="log", dtick=1 if columns == 1 else "D2", exponentformat="none")
    fit_legend(figure, columns)
    return figure


def roofline_table(points: Sequence[RooflinePoint], *, gb_per_s: float, peak_tflop_per_s: float) -> Table:
    """Intensity, rate and share of the roofline of each kernel."""
    rows = tuple(
        (one.label, one.flop_per_byte, one.tflop_per_s,
         100 * one.tflop_per_s / min(peak_tflop_per_s, one.flop_per_byte * gb_per_s / 1e3))
        for one in points
    )  # fmt: skip
    columns = ("kernel", "intensity (FLOP/byte)", "rate (TFLOP/s)", "of the roofline (%)")
    return Table(columns, rows, f"Roofline: {gb_per_s:,.0f} GB/s, {peak_tflop_per_s:,.3g} TFLOP/s.")


def _kernel(point: RooflinePoint, at: int, share: float, size: Size) -> go.Scatter:
    symbol = _SYMBOLS[at % len(_SYMBOLS)]
    outline = {"width": 1.2 if size.paper else 2} if point.start else {"width": 0.5, "color": BLACK}
    return go.Scatter(
        x=[point.flop_per_byte], y=[point.tflop_per_s], mode="markers",
        name=f"{escape(point.label)}: {share:.0%} of the roofline",
        marker={
            "color": _COLOURS[at % len(_COLOURS)], "symbol": f"{symbol}-open" if point.start else symbol,
            "size": 1.2 * size.marker, "line": outline,
        },
    )  # fmt: skip
