"""What became of an experiment, in a word, a colour and a shape, the same in every widget.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; ``$ink`` is the theme's own
text colour.  Source: M. Okabe and K. Ito, Color Universal Design, 2008.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from autokernel.experiment import Experiment, State
from autokernel.measurement import Ratio

__all__ = ["OUTCOMES", "Outcome", "interval", "microseconds", "outcome_of", "times"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One kind of outcome.

    Attributes:
        key: Its name in code and in style sheets.
        label: Its name for people.
        colour: As plotly takes it, or ``$ink``.
        symbol: plotly's name of the shape.
        mark: The shape as a character, for tables.
    """

    key: str
    label: str
    colour: str
    symbol: str
    mark: str

    def marker(self, size: int) -> dict[str, Any]:
        """The marker of a plotly trace."""
        return {
            "color": self.colour, "symbol": self.symbol, "size": size, "line": {"width": 1.5, "color": self.colour}
        }  # fmt: skip


OUTCOMES = {
    one.key: one
    for one in (
        Outcome("baseline", "starting kernel", "$ink", "diamond", "◆"),
        Outcome("kept", "kept", "#009E73", "circle", "●"),
        Outcome("reverted", "reverted", "#0072B2", "circle-open", "○"),
        Outcome("wrong", "wrong", "#D55E00", "x", "✕"),
        Outcome("crashed", "crashed or hung", "#CC79A7", "square", "■"),
        Outcome("waiting", "waits for you", "#E69F00", "triangle-up", "▲"),
        Outcome("judging", "being judged", "$ink", "circle-open-dot", "◌"),
    )
}


def outcome_of(experiment: Experiment) -> Outcome:
    """What became of an experiment so far."""
    if experiment.state is State.WAITING:
        return OUTCOMES["waiting"]
    if experiment.correctness in ("CRASH", "TIMEOUT"):
        return OUTCOMES["crashed"]
    if experiment.correctness and not experiment.passed:
        return OUTCOMES["wrong"]
    if experiment.state is not State.DECIDED:
        return OUTCOMES["judging"]
    return OUTCOMES[{"keep": "kept", "revert": "reverted"}.get(experiment.decision, "baseline")]


def microseconds(value: float | None) -> str:
    """A time with four significant digits, never in powers of ten, such as ``12,980`` or ``4.213``; "" for None."""
    if value is None:
        return ""
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 1000 else f"{value:.4g}"


def times(ratio: Ratio | None) -> str:
    """A speedup such as ``1.312×``; "" for None."""
    return "" if ratio is None else f"{ratio.value:.3f}×"


def interval(ratio: Ratio | None) -> str:
    """Its 95 % interval such as ``1.290 to 1.335``; "" for None."""
    return "" if ratio is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
