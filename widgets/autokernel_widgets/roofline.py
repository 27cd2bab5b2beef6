"""Where the kernels of a run stand below the roofline of the device."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.experiment import Experiment
from autokernel.measurement import CaseTiming
from autokernel.plaintext import one_line
from autokernel.runfolder import RunFolder
from autokernel_widgets.chart import Chart, base_layout
from autokernel_widgets.markup import node
from autokernel_widgets.outcomes import OUTCOMES, outcome_of

if TYPE_CHECKING:
    from autokernel import hardware
    from autokernel.session import Session

__all__ = ["Place", "Roofline", "place_of"]

_MOST = 60  # records that are read: each is a file


@dataclasses.dataclass(frozen=True)
class Place:
    """A kernel's place on one timing case.

    Attributes:
        case: The timing case.
        flop_per_byte: Its arithmetic intensity, from the least bytes that must move.
        tflop_per_s: The kernel's rate.
        limit_tflop_per_s: The rate at the floor, from the device's measured figures; None without a floor.
        share: Floor over latency, 0 to 1, or None.
    """

    case: str
    flop_per_byte: float
    tflop_per_s: float
    limit_tflop_per_s: float | None
    share: float | None


def place_of(case: CaseTiming) -> Place | None:
    """The candidate's place, or None if the operation gives no FLOP or no bytes."""
    if not case.tflop_per_s or not case.gb_per_s:
        return None
    latency = case.contestants["candidate"].latency_us
    limit = case.tflop_per_s * latency / case.floor_us if case.floor_us else None
    return Place(case.label, case.tflop_per_s * 1e3 / case.gb_per_s, case.tflop_per_s, limit, case.fraction_of_peak)


class Roofline(Chart):
    """Rate over arithmetic intensity of the kernels that were kept, of the one that waits, and of the selected one.

    A bar over each timing case is the rate at the floor, which the device's measured bandwidth and rate
    allow there.  With ``peaks`` the whole roof is drawn.

    Args:
        run: A run folder, its path, or the session that drives it in this process.
        peaks: `autokernel.hardware.roofline(device)` of the run's device; measuring takes seconds, so
            it is not done here.
        selected: The experiment that is marked; -1 for none.
        live: Follow the run by itself.

    Source: S. Williams, A. Waterman and D. Patterson, Roofline, CACM 52(4), 2009.
    """

    def __init__(
        self,
        run: RunFolder | Session | str | Path,
        *,
        peaks: hardware.Roofline | None = None,
        selected: int = -1,
        live: bool = True,
    ) -> None:
        self._peaks = peaks
        self._places: dict[str, list[Place]] = {}
        super().__init__(run, selected=selected, live=live)
        self.observe(lambda change: self.refresh(), "selected")

    def _draw(self) -> dict[str, Any]:
        shown = self._shown()
        places = {one.number: self._places_of(one) for one in shown}
        self.label = "Roofline: " + (self._said(shown, places) or "nothing is measured yet")
        layout = base_layout("arithmetic intensity (FLOP/byte)", "rate (TFLOP/s)", height=340)
        layout["xaxis"] |= {"type": "log", "dtick": "D2"}
        layout["yaxis"] |= {"type": "log", "dtick": "D2"}
        everywhere = [place for found in places.values() for place in found]
        if not everywhere:
            words = "no rate is known yet, or the operation gives no FLOP"
            layout["annotations"] = [
                {"text": words, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
            ]
            layout |= {"xaxis": {"visible": False}, "yaxis": {"visible": False}, "height": 80}
            return {"data": [], "layout": layout}
        roof = self._roof(everywhere)
        traces = [*roof, *_floors(everywhere)]
        for outcome in OUTCOMES.values():
            group = [(one, place) for one in shown if outcome_of(one) is outcome for place in places[one.number]]
            if group:
                traces.append(_points(group, outcome))
        if places.get(self.selected):
            traces.append(_ring(places[self.selected]))
        _limit_axes(layout, everywhere, whole=bool(roof))
        return {"data": traces, "layout": layout}

    def _shown(self) -> list[Experiment]:
        experiments = self._source.read(lambda folder: folder.experiments)
        timed = [one for one in experiments if one.speedup is not None]
        chosen = [one for one in timed if one.decision in ("keep", "baseline") or outcome_of(one).key == "waiting"]
        chosen = [*chosen[:1], *chosen[1:][-_MOST:]]
        return chosen + [one for one in timed if one.number == self.selected and one not in chosen]

    def _places_of(self, one: Experiment) -> list[Place]:
        if one.commit not in self._places:
            _, measurement, confirmation = self._source.read(lambda folder: folder.judgement(one.number))
            used = confirmation or measurement
            self._places[one.commit] = [place for case in used.cases if (place := place_of(case))] if used else []
        return self._places[one.commit]

    def _roof(self, places: Sequence[Place]) -> list[dict[str, Any]]:
        """The whole roof, where the device's figures were handed in."""
        dtype = self._source.read(lambda folder: folder.target.dtype)
        rate = self._peaks.rate_tflop_per_s(dtype) if self._peaks else None
        if self._peaks is None or rate is None:
            return []
        bandwidth = self._peaks.bandwidth_gb_per_s
        ridge = rate * 1e3 / bandwidth
        left = min([ridge, *(place.flop_per_byte for place in places)]) / 4
        right = max([ridge, *(place.flop_per_byte for place in places)]) * 4
        return [
            {"type": "scatter", "mode": "lines", "name": f"{bandwidth:,.0f} GB/s, {rate:,.3g} TFLOP/s",
             "hoverinfo": "skip", "x": [left, ridge, right], "y": [left * bandwidth / 1e3, rate, rate],
             "line": {"color": "$ink", "width": 2}}
        ]  # fmt: skip

    @staticmethod
    def _said(shown: Sequence[Experiment], places: dict[int, list[Place]]) -> str:
        said = [
            f"experiment {one.number} at {100 * place.share:.0f} % of the floor"
            for one in shown
            for place in places[one.number][:1]
            if place.share is not None
        ]
        return "; ".join(said[-5:])

    def _sketch(self) -> list[Any]:
        shown = self._shown()
        rows = [
            node("tr", *(node("td", cell) for cell in (
                str(one.number), outcome_of(one).label, place.case, f"{place.flop_per_byte:.3g}",
                f"{place.tflop_per_s:.3g}", "" if place.share is None else f"{100 * place.share:.0f} %")))
            for one in shown for place in self._places_of(one)
        ]  # fmt: skip
        titles = ("n", "outcome", "case", "FLOP/byte", "TFLOP/s", "share of the floor")
        head = node("tr", *(node("th", title) for title in titles))
        return node("div", node("table", node("thead", head), node("tbody", *rows), class_="ak-table"))


def _floors(places: Sequence[Place]) -> list[dict[str, Any]]:
    """A bar over each timing case: the latest place's limit, for limits of the same case hardly differ."""
    limits = {place.case: place for place in places if place.limit_tflop_per_s is not None}
    if not limits:
        return []
    words = [
        f"{html.escape(one_line(case))}<br>{place.limit_tflop_per_s:.3g} TFLOP/s at the floor"
        for case, place in limits.items()
    ]
    return [
        {"type": "scatter", "mode": "markers", "name": "roofline at this intensity", "hovertext": words,
         "hoverinfo": "text",
         "x": [place.flop_per_byte for place in limits.values()],
         "y": [place.limit_tflop_per_s for place in limits.values()],
         "marker": {"symbol": "line-ew", "size": 46, "line": {"width": 3, "color": "$ink"}, "color": "$ink"}}
    ]  # fmt: skip


def _points(group: Sequence[tuple[Experiment, Place]], outcome: Any) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": outcome.label,
        "x": [place.flop_per_byte for _, place in group], "y": [place.tflop_per_s for _, place in group],
        "customdata": [one.number for one, _ in group], "hovertext": [_words(one, place) for one, place in group],
        "hoverinfo": "text",
        "marker": outcome.marker(11),
    }  # fmt: skip


def _ring(places: Sequence[Place]) -> dict[str, Any]:
    """The mark of the selected experiment."""
    return {
        "type": "scatter", "mode": "markers", "name": "selected", "showlegend": False, "hoverinfo": "skip",
        "x": [place.flop_per_byte for place in places], "y": [place.tflop_per_s for place in places],
        "marker": {"symbol": "circle-open", "size": 20, "color": "$ink", "line": {"width": 2, "color": "$ink"}},
    }  # fmt: skip


def _words(one: Experiment, place: Place) -> str:
    share = "no floor: the data stay in the cache" if place.share is None else f"{100 * place.share:.0f} % of the floor"
    said = f"{place.tflop_per_s:.3g} TFLOP/s, {share}"
    hypothesis = html.escape(one_line(one.hypothesis, limit=70), quote=False)
    title = f"<b>experiment {one.number}: {outcome_of(one).label}</b>"
    return "<br>".join((title, said, html.escape(one_line(place.case)), hypothesis))


def _limit_axes(layout: dict[str, Any], places: Sequence[Place], *, whole: bool) -> None:
    """Room around the places, which are one column when there is one timing case; axes are decades."""
    if whole:
        return
    rates = [rate for place in places for rate in (place.tflop_per_s, place.limit_tflop_per_s) if rate]
    for name, values in (("xaxis", [place.flop_per_byte for place in places]), ("yaxis", rates)):
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(0.2, 0.6 - (high - low) / 2)
        layout[name]["range"] = [low - room, high + room]
