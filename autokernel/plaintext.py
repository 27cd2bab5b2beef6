"""Make text that somebody else wrote safe to show: a hypothesis, an error, a compiler's output.

A candidate controls such text, so it may hold terminal escapes that move the cursor, characters
that reverse the reading direction, or a megabyte without a line break.  What is removed here is
invisible; what can be read stays.  Markup (of rich, of HTML) is escaped where the text is shown.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["clean", "one_line"]

# ECMA-48: CSI sequences, OSC/DCS/PM/APC strings up to their terminator, two-character escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def clean(text: object, *, limit: int = 20_000) -> str:
    """Return ``text`` without terminal escapes and invisible characters; line breaks stay.

    Args:
        text: Anything; converted with `str`.
        limit: The most characters to return; what was cut is said at the end.

    >>> clean("\\x1b[31mred\\x1b[0m\\ttext\\r\\nsecond")
    'red    text\\nsecond'
    """
    raw = str(text)
    cut = len(raw) - limit
    plain = _ESCAPES.sub("", raw[:limit]).replace("\r\n", "\n").expandtabs(4)
    plain = "".join(char for char in plain if char == "\n" or unicodedata.category(char) not in _INVISIBLE)
    return f"{plain} [{cut} characters cut]" if cut > 0 else plain


def one_line(text: object, *, limit: int = 200) -> str:
    """Return `clean` text on one line, with ``…`` where it was cut to ``limit`` characters.

    >>> one_line("first\\n  second")
    'first second'
    """
    words = " ".join(clean(text, limit=max(20_000, limit)).split())
    return words if len(words) <= limit else words[: limit - 1] + "…"
