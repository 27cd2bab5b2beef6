"""What an agent was asked for an experiment and what came back, with tokens and time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.plaintext import clean, one_line
from autokernel.runfolder import RunFolder
from autokernel_widgets.markup import Node, node
from autokernel_widgets.panel import Panel

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["AgentTrace"]

_LONGEST = 20_000


class AgentTrace(Panel):
    """The exchange with the agent that led to one experiment.

    Whatever an agent's trace holds is shown as text.  A list of chat messages (``role``, ``content``)
    is shown message by message; anything else as it stands in the record.

    Args:
        run: A run folder, its path, or a session.
        n: The experiment.
        live: Follow the run by itself.
    """

    def __init__(self, run: RunFolder | Session | str | Path, n: int, *, live: bool = True) -> None:
        super().__init__(run, selected=n, live=live)

    def _content(self) -> list[Any]:
        number = self.selected
        if number < 0:
            return node("div", node("p", "no experiment is selected", class_="ak-note"), class_="ak")
        experiment = self._source.read(lambda folder: folder.experiment(number))
        record = self._source.record(number)
        self.label = f"The agent's exchange for experiment {number}"
        tokens = "no tokens" if experiment.tokens is None else f"{experiment.tokens:,} tokens"
        parts = [
            one_line(experiment.agent) or "?",
            tokens,
            f"{experiment.think_seconds:.1f} s",
            *_price(record.get("trace")),
        ]
        return node(
            "div",
            node("h3", f"What the agent was asked and answered: experiment {number}"),
            node("p", " · ".join(parts), class_="ak-small"),
            *_comments(record),
            *_trace(record.get("trace"), number),
            class_="ak ak-trace",
        )


def _price(trace: Any) -> list[str]:
    """What the exchange cost, in the currency of the agent's prices, where its turns say so."""
    turns = trace.get("turns") if isinstance(trace, dict) else None
    costs = [turn.get("cost") for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    known = [cost for cost in costs if isinstance(cost, (int, float))]
    return [f"cost {sum(known):.4g}"] if known else []


def _comments(record: dict[str, Any]) -> list[Node]:
    return [
        node("p", node("strong", "a person: "), clean(text, limit=2000), class_="ak-said")
        for text in record.get("comments") or ()
    ]


def _trace(trace: Any, number: int) -> list[Node]:
    if not trace:
        return [
            node("p", "The agent left no exchange: it has no model to ask, or a person wrote it.", class_="ak-note")
        ]
    if not isinstance(trace, dict):
        return [_block("exchange", trace, number)]
    parts: list[Node] = []
    for name, value in trace.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) and "role" in one for one in value):
            for index, one in enumerate(value):
                parts += _said(one, f"{number}-{name}-{index}")
        else:
            parts.append(_block(one_line(name), value, f"{number}-{name}"))
    return parts


def _said(message: dict[str, Any], identity: str) -> list[Node]:
    """One message of a chat, with the model's reasoning before its answer."""
    thought = message.get("reasoning")
    parts = [_block("reasoning", thought, f"{identity}-reasoning")] if thought else []
    return [*parts, _block(one_line(message.get("role")), message.get("content", message), identity)]


def _block(title: str, value: Any, identity: object) -> Node:
    text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False, default=str)
    short = len(text) < 120 and "\n" not in text
    if short:
        return node("p", node("strong", f"{title}: "), clean(text), class_="ak-said")
    summary = node("summary", node("strong", title), f" {one_line(text, limit=90)}")
    body = node("pre", clean(text, limit=_LONGEST))
    return node("details", summary, body, data_id=f"trace-{one_line(identity)}")
