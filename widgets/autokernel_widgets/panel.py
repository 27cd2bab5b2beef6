"""The widget that shows a tree of elements and reports what a person did with it.

The browser's side (common.js, panel.js) is the same for all panels: it builds the tree, keeps what the person is
doing (open sections, unsaved text, the focus) when a new tree comes, and sends actions.  What an
action means is decided here, in Python, where a test reaches it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from autokernel.errors import AutokernelError, UsageError
from autokernel.plaintext import clean
from autokernel.runfolder import RunFolder
from autokernel_widgets.following import Follower, RunSource, Unreadable
from autokernel_widgets.markup import Node, node, to_html

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["Panel", "message", "script", "static_html", "with_html"]

_HERE = Path(__file__).parent
STYLE = _HERE / "panel.css"


def script(name: str) -> str:
    """A widget's script, behind what all of them share."""
    return "\n".join((_HERE / part).read_text(encoding="utf-8") for part in ("common.js", name))


class Panel(Follower, anywidget.AnyWidget):
    """Base of the widgets that are text, tables and controls.

    Args:
        run: A run folder, its path, or the session that drives it in this process.  If it cannot be
            read, the widget says why.
        selected: The experiment that is shown or marked; -1 for none.
        live: Follow the run by itself.

    Attributes:
        selected: As above; link it to that of other widgets with `traitlets.link`.
        readable: False while the widget says why it cannot show the run.
    """

    _esm = script("panel.js")
    _css = STYLE

    tree: traitlets.List[Any] = traitlets.List().tag(sync=True)
    beat = traitlets.Int(0).tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)
    readable = traitlets.Bool(True)

    def __init__(self, run: RunFolder | Session | str | Path, *, selected: int = -1, live: bool = True) -> None:
        super().__init__(selected=selected)
        self._source = RunSource.of(run)
        self.refresh()
        self.observe(lambda change: self.refresh(), "selected")
        self.on_msg(lambda widget, content, buffers: self._in_loop(lambda: self._heard(content)))
        self._begin(live)

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        try:
            tree, readable = self._source.guard(self._content), True
        except Unreadable as error:
            tree, readable = message(str(error)), False
        if tree == self.tree:
            return False
        self.tree, self.readable = tree, readable
        return True

    def _content(self) -> list[Any]:
        """The tree to show.

        Raises:
            Unreadable: The run cannot be read.
        """
        raise NotImplementedError

    def _act(self, action: str, value: str, fields: dict[str, str]) -> str:
        """Do what a person asked for, and say what was done ("" if that is plain to see).

        Raises:
            UsageError: It does not apply; the message says why.
        """
        raise UsageError(f"this widget knows no action {action!r}")

    def _writing(self) -> None:
        """A person begins to write in a field of this widget."""

    def _heard(self, content: Any) -> None:
        """Take a message of the browser apart, carry it out, answer."""
        if not isinstance(content, dict) or not isinstance(content.get("action"), str):
            return
        if content["action"] == "writing":
            self._writing()
            return
        fields = content.get("fields")
        fields = {str(name): str(text) for name, text in fields.items()} if isinstance(fields, dict) else {}
        try:
            said, accepted = self._act(content["action"], str(content.get("value", "")), fields), True
        except (AutokernelError, Unreadable) as error:
            said, accepted = clean(error, limit=1000), False
        self.send({"answers": content.get("id"), "accepted": accepted, "message": said})
        self.refresh()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        return with_html(bundle, lambda: static_html(self.tree))


def message(text: str, *, kind: str = "problem") -> list[Any]:
    """A tree that says one sentence: a ``problem``, or a ``note``."""
    role = "alert" if kind == "problem" else "status"
    return node("div", node("p", text, class_=f"ak-{kind}", role=role), class_="ak")


def static_html(tree: Node) -> str:
    """What a front end without widgets shows of a tree."""
    return f"<style>{STYLE.read_text(encoding='utf-8')}</style>{to_html(tree)}"


def with_html(bundle: Any, make: Any) -> Any:
    """Add HTML to what a widget gives a front end to choose from; it is read where widgets are unknown."""
    if not bundle:
        return bundle
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    return {**data, "text/html": make()}, metadata
