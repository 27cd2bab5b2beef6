"""Do in a test what a browser does: press a button that the widget shows, and hear the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autokernel_widgets.markup import text_of


def nodes(tree: Any) -> Iterator[list[Any]]:
    """All elements of a tree."""
    if isinstance(tree, list) and len(tree) > 1:
        yield tree
        for child in tree[2:]:
            yield from nodes(child)


def find(widget: Any, **attributes: str) -> list[list[Any]]:
    """The elements with these attributes; ``data_action="keep"`` means ``data-action``."""
    wanted = {name.replace("_", "-").rstrip("-"): value for name, value in attributes.items()}
    return [one for one in nodes(widget.tree) if wanted.items() <= one[1].items()]


def press(widget: Any, action: str, value: str | None = None, **fields: str) -> tuple[bool, str]:
    """Press the button (or choose in the select) of an action that the widget shows; returns accepted and message."""
    (element, *_) = find(widget, data_action=action, **({} if value is None else {"data_value": value})) or find(
        widget, data_action=action
    )
    assert "disabled" not in element[1], f"{text_of(element)} is disabled"
    return say(widget, action, element[1].get("data-value", "") if value is None else value, **fields)


def say(widget: Any, action: str, value: str = "", **fields: str) -> tuple[bool, str]:
    """Send a message as a browser would, whether or not the widget offers it."""
    answers: list[dict[str, Any]] = []
    real = widget.send
    widget.send = lambda content, buffers=None: answers.append(content)
    try:
        widget._handle_custom_msg({"action": action, "value": value, "fields": fields, "id": "1"}, [])
    finally:
        widget.send = real
    (answer,) = answers
    assert answer["answers"] == "1"
    return answer["accepted"], answer["message"]
