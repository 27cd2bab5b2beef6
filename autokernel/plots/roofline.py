"""Kernels under the roofline of their device.

Units: TFLOP/s, GB/s (10^9 bytes), FLOP/byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.measurement import CaseTiming
from autokernel.plots.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, dress, escape

__all__ = ["RooflinePoint", "roofline", "roofline_point"]


@dataclasses.dataclass(frozen=True)
class RooflinePoint:
    """A kernel's place on the roofline: FLOP per byte moved at the least, and rate in TFLOP/s."""

    label: str
    flop_per_byte: float
    tflop_per_s: float


def roofline_point(case: CaseTiming, label: str = "candidate") -> RooflinePoint | None:
    """The candidate's place on the roofline, or None if the spec gives no FLOP or no bytes."""
    if not case.tflop_per_s or not case.gb_per_s:
        return None
    return RooflinePoint(label, case.tflop_per_s * 1e3 / case.gb_per_s, case.tflop_per_s)


def roofline(
    points: Sequence[RooflinePoint], *, gb_per_s: float, peak_tflop_per_s: float, device: str = ""
) -> go.Figure:
    """Draw ``min(peak, intensity * bandwidth)`` on logarithmic axes, and the kernels below it.

    Args:
        points: Kernels on the same device and dtype.
        gb_per_s: Bandwidth of the device's memory, above 0; the measured figure by preference.
        peak_tflop_per_s: Peak rate for the dtype, above 0; the measured figure by preference.
        device: Its name, for the title.

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
    figure.add_trace(
        go.Scatter(
            x=[left, ridge, right], y=[left * gb_per_s / 1e3, peak_tflop_per_s, peak_tflop_per_s], mode="lines",
            line={"color": BLACK, "width": 2}, hoverinfo="skip",
            name=f"roofline: {gb_per_s:,.0f} GB/s, {peak_tflop_per_s:,.3g} TFLOP/s",
        )
    )  # fmt: skip
    symbols = ("circle", "square", "diamond", "triangle-up", "x")
    for index, point in enumerate(points):
        colour = (GREEN, BLUE, ORANGE, PURPLE, VERMILION)[index % 5]
        share = point.tflop_per_s / min(peak_tflop_per_s, point.flop_per_byte * gb_per_s / 1e3)
        figure.add_trace(
            go.Scatter(
                x=[point.flop_per_byte], y=[point.tflop_per_s], mode="markers",
                name=f"{escape(point.label)}: {share:.0%} of the roofline",
                marker={"color": colour, "symbol": symbols[index % 5], "size": 12},
            )
        )  # fmt: skip
    title = f"Roofline of {escape(device)}" if device else "Roofline"
    dress(figure, "Arithmetic intensity (FLOP/byte)", "Rate (TFLOP/s)", title=title)
    figure.update_xaxes(type="log", dtick="D2")
    figure.update_yaxes(type="log", dtick="D2")
    return figure
