"""Bars made of parts, as trees of SVG elements: shares of a whole, without plotly and without a browser.

Parts are told apart by class: ``full`` is filled, ``open`` an outline, ``faint`` a shade.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autokernel_widgets.markup import Node, node
from autokernel_widgets.panel import STYLE, Panel, static_html, with_html

__all__ = ["SHEET", "BarPanel", "bar"]

_OWN = Path(__file__).with_name("bars.css").read_text(encoding="utf-8")
SHEET = f"{STYLE.read_text(encoding='utf-8')}\n{_OWN}"


class BarPanel(Panel):
    """A panel whose tree holds bars; with or without widgets it has their style sheet."""

    _css = SHEET  # type: ignore[assignment]

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        return with_html(bundle, lambda: f"<style>{_OWN}</style>{static_html(self.tree)}")


def bar(
    parts: Sequence[tuple[float, str, str]], label: str, *, width: int = 130, height: int = 14, names: bool = False
) -> Node:
    """A bar whose parts lie one after the other.

    Args:
        parts: Of each its length as a fraction of the bar (0 to 1; cut where the bar ends), its class, and
            its name, which a pointer shows.
        label: What the bar says, for those who do not see it.
        width, height: In units of the picture.
        names: Write the name of a part into it where there is room.
    """
    drawn: list[Node] = [node("rect", x=0, y=0, width=width, height=height, class_="ak-bar-back")]
    begin = 0.0
    for fraction, kind, name in parts:
        length = max(0.0, min(fraction, 1.0 - begin))
        left, wide = begin * width, length * width
        begin += length
        if wide < 0.25:
            continue
        drawn.append(
            node("rect", node("title", name), x=_r(left), y=0, width=_r(wide), height=height, class_=f"ak-bar-{kind}")
        )
        if names and wide > 7.0 * len(name) + 6:
            middle = _r(left + wide / 2)
            drawn.append(
                node("text", name, x=middle, y=_r(height / 2 + 4), text_anchor="middle", class_=f"ak-on-{kind}")
            )
    return node("svg", node("title", label), *drawn, viewBox=f"0 0 {width} {height}", width=width, height=height,
                role="img", aria_label=label, class_="ak-bar")  # fmt: skip


def _r(value: float) -> str:
    return f"{value:.2f}"
