"""Colours of the widgets: text can be read on every background that it stands on, in JupyterLab's light and dark theme.

Contrast as in WCAG 2.2, success criterion 1.4.3: 4.5 for text of this size.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from autokernel_widgets.panel import STYLE

THEMES = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"
LEAST = 4.5
WORDS = ("ink", "faint", "good", "bad", "info", "warn", "odd")
CODE = ("ink", "k", "s", "n", "c", "f")
PAIRS = [
    *((word, ground) for ground in ("back", "raised", "chosen") for word in WORDS),
    *((word, ground) for ground in ("back", "raised", "del", "ins") for word in CODE),
    *((word, ground) for ground in ("delword", "insword") for word in CODE),
    ("back", "info"),  # buttons
    ("back", "good"),
]

pytestmark = pytest.mark.skipif(not THEMES.is_dir(), reason="JupyterLab's themes are not installed")


def declared(text: str) -> dict[str, str]:
    """The variables that a piece of CSS sets."""
    return {name: value.strip() for name, value in re.findall(r"(--[\w-]+)\s*:\s*([^;}]+)", text)}


def variables(theme: str) -> dict[str, str]:
    """All variables as they stand within a widget in a theme."""
    found = declared((THEMES / f"theme-{theme}-extension" / "index.css").read_text())
    blocks = re.findall(r"([^{}]*)\{([^{}]*)\}", STYLE.read_text())
    for selector, body in blocks:
        dark = 'data-jp-theme-light="false"' in selector
        roots = [one for one in selector.split(",") if one.strip().endswith(".ak-root")]
        if roots and (theme == "dark" or not dark):
            found |= declared(body)
    return found


def rgba(value: str, known: dict[str, str]) -> tuple[float, float, float, float]:
    """A colour, variables resolved; each part from 0 to 1."""
    reference = re.fullmatch(r"var\((--[\w-]+)(?:,\s*(.*))?\)", value)
    if reference:
        return rgba(known.get(reference[1], reference[2]), known)
    halves = re.fullmatch(r"color-mix\(in srgb, (.+) (\d+)%, (.+)\)", value)
    if halves:
        return blend(rgba(halves[1], known), rgba(halves[3], known), int(halves[2]) / 100)
    mixed = re.fullmatch(r"rgba\((\d+),\s*(\d+),\s*(\d+),\s*([\d.]+)\)", value)
    if mixed:
        return int(mixed[1]) / 255, int(mixed[2]) / 255, int(mixed[3]) / 255, float(mixed[4])
    digits = {"white": "fff", "black": "000"}.get(value, value.removeprefix("#"))
    digits = "".join(2 * one for one in digits) if len(digits) < 6 else digits
    red, green, blue, alpha = (int(digits[at : at + 2] or "ff", 16) / 255 for at in (0, 2, 4, 6))
    return red, green, blue, alpha


def blend(one: tuple[float, ...], other: tuple[float, ...], share: float) -> tuple[float, float, float, float]:
    """Two colours mixed as ``color-mix`` does: by their parts times their opacity."""
    alpha = share * one[3] + (1 - share) * other[3]
    red, green, blue = ((share * one[i] * one[3] + (1 - share) * other[i] * other[3]) / alpha for i in range(3))
    return red, green, blue, alpha


def over(above: tuple[float, ...], below: tuple[float, ...]) -> tuple[float, float, float, float]:
    """A colour with transparency on an opaque one."""
    red, green, blue = (above[3] * one + (1 - above[3]) * other for one, other in zip(above[:3], below, strict=False))
    return red, green, blue, 1.0


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    parts = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(word: str, ground: str, theme: str) -> float:
    known = variables(theme)
    page = rgba("var(--jp-layout-color1)", known)
    below = over(rgba(f"var(--ak-{ground})", known), page)
    light = sorted((luminance(below), luminance(over(rgba(f"var(--ak-{word})", known), below))))
    return (light[1] + 0.05) / (light[0] + 0.05)


def test_the_measure_is_that_of_the_standard():
    assert (luminance(rgba("white", {})) + 0.05) / (luminance(rgba("#000", {})) + 0.05) == pytest.approx(21)
    assert (luminance(rgba("white", {})) + 0.05) / (luminance(rgba("#767676", {})) + 0.05) == pytest.approx(
        4.54, abs=0.01
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_what_it_stands_on(theme):
    poor = {(word, ground): round(contrast(word, ground, theme), 2) for word, ground in PAIRS}
    assert {pair: value for pair, value in poor.items() if value < LEAST} == {}
