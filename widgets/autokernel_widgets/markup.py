"""Trees of elements: what a panel shows, as plain data that holds text and never HTML.

A node is a text or a list ``[tag, attributes, child, ...]``, ready for JSON.  A browser builds it with
``createElement`` and ``textContent`` (common.js); a front end without widgets gets the same tree from
`to_html`, escaped.  Tags and attributes outside the two lists below are refused on both sides, and
neither list has one that can run anything or load anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["Node", "classes", "node", "text_of", "to_html"]

Node = str | list[Any]

_NAMES = """
    div span p h3 h4 ul ol li table thead tbody tr th td details summary button input textarea select option label
    pre strong section header br svg g line rect text title polyline
"""
TAGS = frozenset(_NAMES.split())
ATTRIBUTES = re.compile(
    r"class|role|title|type|value|disabled|open|selected|checked|placeholder|colspan|scope|rows|"
    r"tabindex|spellcheck|min|max|aria-[a-z]+|data-[a-z]+|"
    r"viewBox|width|height|x|y|x1|y1|x2|y2|points|text-anchor"
)
_VOID = frozenset({"br", "input"})
_CONTROLS = frozenset({"button", "input", "textarea", "select", "label"})


def node(tag: str, *children: Node | None, **attributes: object) -> list[Any]:
    """One element.

    Args:
        tag: One of `TAGS`.
        children: Texts and nodes; None is left out.
        attributes: Underscores stand for hyphens, and one at the end is dropped (``class_``).  True is
            an attribute without a value; False and None leave it out.

    Raises:
        ValueError: The tag or an attribute is not on the lists.
    """
    if tag not in TAGS:
        raise ValueError(f"the tag {tag!r} is not shown; known: {', '.join(sorted(TAGS))}")
    kept: dict[str, str] = {}
    for name, value in attributes.items():
        plain = name.rstrip("_").replace("_", "-")
        if not ATTRIBUTES.fullmatch(plain):
            raise ValueError(f"the attribute {plain!r} of <{tag}> is not shown")
        if value is not None and value is not False:
            kept[plain] = "" if value is True else str(value)
    return [tag, kept, *(child for child in children if child is not None)]


def classes(*names: str | None | bool) -> str | None:
    """Class names that are not empty, joined; None without any."""
    return " ".join(name for name in names if isinstance(name, str) and name) or None


def to_html(tree: Node) -> str:
    """The tree as HTML for a front end without widgets: escaped, and without controls, which nobody would hear."""
    if isinstance(tree, str):
        return html.escape(tree)
    tag, attributes, *children = tree
    if tag in _CONTROLS:
        return ""
    if tag not in TAGS:
        raise ValueError(f"the tag {tag!r} is not shown")
    shown = "".join(
        f' {name}="{html.escape(value)}"' for name, value in attributes.items() if ATTRIBUTES.fullmatch(name)
    )
    if tag in _VOID:
        return f"<{tag}{shown}>"
    return f"<{tag}{shown}>{''.join(map(to_html, children))}</{tag}>"


def text_of(tree: Node | Iterable[Node]) -> str:
    """All text of a tree, for tests and for labels."""
    if isinstance(tree, str):
        return tree
    if isinstance(tree, list) and len(tree) > 1 and isinstance(tree[1], dict):
        tree = tree[2:]
    return "".join(text_of(child) for child in tree)
