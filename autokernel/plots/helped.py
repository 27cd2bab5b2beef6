"""Figure of what helped: bars by tier or tag, or the kept kernels as steps from the first to the last.

Bars begin at 1, no gain.  Intervals are of 95 %.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from autokernel.errors import UsageError
from autokernel.measurement import Ratio
from autokernel.plaintext import one_line
from autokernel.plots.attribution import Contribution, contributions, product, steps
from autokernel.plots.series import Series
from autokernel.plots.style import (
    BLACK,
    GREEN,
    GREY,
    PALETTE,
    PATTERNS,
    Size,
    dress,
    escape,
    fit_legend,
    hatch,
    lighter,
    nice_step,
    size_of,
    text_width,
)

__all__ = ["ablation"]


def ablation(series: Sequence[Series], *, by: str = "tier", title: str = "", columns: int | None = None) -> go.Figure:
    """Draw what the kept kernels of one or several runs brought.

    Args:
        series: Bars for each; one only with ``by="step"``.
        by: ``tier``, ``tag``, or ``step``: see `autokernel.plots.attribution`.
        title: Above the figure.
        columns: Width in columns of a page; the screen's when None.

    Raises:
        UsageError: Another ``by``; several runs step by step; no experiment but the baseline.
    """
    if not any(steps(one, by) for one in series):
        raise UsageError("nothing to attribute: these runs have no experiment that was decided, but the baseline")
    if by != "step":
        return _grouped(series, by, title, columns)
    if len(series) != 1:
        raise UsageError(f"steps are those of one run, got {len(series)}; name one, or group by tier or tag")
    return _stairs(series[0], title, columns)


def _grouped(series: Sequence[Series], by: str, title: str, columns: int | None) -> go.Figure:
    found = [{part.group: part for part in contributions(one, by)} for one in series]
    groups = list(dict.fromkeys(group for parts in found for group in parts))
    if by == "tier":
        groups.sort(key=lambda group: (not group.startswith("tier"), group))
    size = size_of(columns)
    thick = (1.7 if len(series) == 1 else 1.35) * size.small
    height = len(groups) * (thick * len(series) + size.small) + (5.5 if columns else 14) * size.small
    figure = go.Figure()
    heading = title or ("" if columns else f"What helped, by {by}")
    dress(figure, "Gain of the kept kernels (×), and kept / tried", "", title=heading, columns=columns, height=height)
    ends = [1.0]
    for at, (one, parts) in enumerate(zip(series, found, strict=True)):
        bars = [(row, parts[group]) for row, group in enumerate(groups) if group in parts]
        offset = (at - (len(series) - 1) / 2) * 0.76 / len(series)
        figure.add_trace(_gains(one.label, at, bars, offset, 0.76 / len(series), size))
        for row, part in bars:
            text = f"{part.gain.value:.2f} ({part.kept} / {part.tried})"
            _add_text(figure, row + offset, part.gain, text, size)
        ends += [_reach(part.gain) for _, part in bars]
    texts = ["<br>".join(map(escape, textwrap.wrap(group, 18 if columns == 1 else 30))) for group in groups]
    figure.update_yaxes(
        tickvals=list(range(len(groups))), ticktext=texts, range=[len(groups) - 0.45, -0.55], showgrid=False, ticks="",
    )  # fmt: skip
    _from_one(figure, max(ends), room=0.42 if columns == 1 else 0.22)
    figure.update_layout(showlegend=len(series) > 1)
    fit_legend(figure, columns, left=text_width(texts, size.small))
    return figure


def _headline(hypothesis: str) -> str:
    """What was changed, without what was expected of it: the words before the first colon or semicolon."""
    return re.split(r"[:;]\s", one_line(hypothesis), maxsplit=1)[0].replace("->", "→")


def _gains(
    name: str, at: int, bars: Sequence[tuple[int, Contribution]], offset: float, width: float, size: Size
) -> go.Bar:
    colour, pattern = PALETTE[at % len(PALETTE)], PATTERNS[at % len(PATTERNS)]
    gains = [part.gain for _, part in bars]
    return go.Bar(
        y=[row + offset for row, _ in bars], x=[gain.value - 1 for gain in gains], base=1, orientation="h",
        width=width * 0.92, name=escape(name), error_x=_spread(gains, size), hoverinfo="skip",
        marker={"color": colour, "line": {"color": BLACK, "width": 0.6}, "pattern": hatch(pattern, colour)},
    )  # fmt: skip


def _add_text(figure: go.Figure, y: float, ratio: Ratio, text: str, size: Size) -> None:
    """A figure behind a bar, on white: an interval that is long beside its value runs on below it."""
    figure.add_annotation(
        x=_reach(ratio), y=y, text=text, showarrow=False, xanchor="left", xshift=3, font={"size": size.small},
        bgcolor="rgba(255,255,255,0.85)", borderpad=0,
    )  # fmt: skip


def _reach(ratio: Ratio) -> float:
    """Where the bar and its interval end, or the bar alone, so that a long interval does not flatten all bars."""
    return ratio.high if ratio.high < 1.6 * ratio.value else ratio.value


def _spread(gains: Sequence[Ratio], size: Size) -> dict[str, object]:
    return {
        "type": "data", "symmetric": False, "color": BLACK,
        "thickness": 0.8 if size.paper else 1.4, "width": 2 if size.paper else 4,
        "array": [gain.high - gain.value for gain in gains], "arrayminus": [gain.value - gain.low for gain in gains],
    }  # fmt: skip


def _from_one(figure: go.Figure, end: float, *, room: float) -> None:
    """An axis that begins at 1 and has room for the texts behind the bars."""
    span = max(end - 1.0, 0.02)
    figure.update_xaxes(range=[1.0, 1.0 + span * (1 + room)], tick0=1, dtick=nice_step(span * (1 + room)))


def _stairs(series: Series, title: str, columns: int | None) -> go.Figure:
    kept = [step for step in steps(series, "step") if step.kept and step.gain is not None]
    so_far = [product(step.gain for step in kept[:at] if step.gain) for at in range(len(kept) + 1)]
    size = size_of(columns)
    lines = 26 if columns == 1 else 48
    texts = ["starting kernel"]
    texts += [
        "<br>".join(map(escape, textwrap.wrap(f"+ {_headline(step.experiment.hypothesis)}", lines)[:2]))
        for step in kept
    ]
    figure = go.Figure()
    height = len(texts) * 2.9 * size.small + (5.5 if columns else 12) * size.small
    dress(figure, "Speedup over the starting kernel (×)", "",
          title=title or ("" if columns else f"What helped, step by step: {escape(series.label)}"),
          columns=columns, height=height)  # fmt: skip
    rows = list(range(len(texts)))
    before = [1.0, *(ratio.value for ratio in so_far[:-1])]
    outline = {"color": BLACK, "width": 0.6}
    figure.add_trace(
        go.Bar(
            y=rows, x=before, orientation="h", width=0.62, name="what was there before", hoverinfo="skip",
            marker={"color": lighter(GREY, 0.7), "line": outline},
        )
    )  # fmt: skip
    brought = [ratio.value - old for ratio, old in zip(so_far, before, strict=True)]
    figure.add_trace(
        go.Bar(
            y=rows[1:], x=brought[1:], base=before[1:], orientation="h", width=0.62, name="what the change brought",
            hoverinfo="skip", error_x=_spread(so_far[1:], size),
            marker={"color": GREEN, "line": outline, "pattern": hatch("/", GREEN)},
        )
    )  # fmt: skip
    for row, ratio in enumerate(so_far):
        _add_text(figure, row, ratio, f"{ratio.value:.2f}×", size)
    figure.update_yaxes(tickvals=rows, ticktext=texts, range=[len(rows) - 0.45, -0.55], showgrid=False, ticks="")
    figure.update_xaxes(range=[0, max(map(_reach, so_far)) * 1.2])
    figure.update_layout(barmode="overlay", showlegend=True)
    fit_legend(figure, columns, left=text_width(texts, size.small))
    return figure
