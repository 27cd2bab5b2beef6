"""C++ text as tokens, and where the operands of an operator begin and end.

Not a parser: it reads C++ as this project formats it, where a binary operator stands between spaces
and the angle bracket of a template does not.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

__all__ = ["ASSIGNMENTS", "KEYWORDS", "PRECEDENCE", "Token", "Tokens"]

PRECEDENCE = {
    **dict.fromkeys("*/%", 10),
    **dict.fromkeys("+-", 9),
    **dict.fromkeys(("<", ">", "<=", ">="), 7),
    **dict.fromkeys(("==", "!="), 6),
    "&&": 3,
    "||": 2,
}
ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=")
KEYWORDS = frozenset(("for", "if", "else", "while", "return", "case", "const", "constexpr", "using", "template"))
_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ ]*\#[^\n]*)
      | (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign><=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|/=|->|::|.)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {close: opening for opening, close in _OPENING.items()}


@dataclasses.dataclass(frozen=True)
class Token:
    """One token: its kind (``name``, ``number``, ``text``, ``sign``), its characters and where they stand.

    ``spaced`` says that white space stands on both sides.
    """

    kind: str
    text: str
    start: int
    stop: int
    spaced: bool


class Tokens(Sequence[Token]):
    """The tokens of a text, without comments and preprocessor lines, and their brackets."""

    def __init__(self, text: str) -> None:
        self.source = text
        self._tokens = []
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "skip":
                start, stop = match.span()
                spaced = text[start - 1 : start].isspace() and text[stop : stop + 1].isspace()
                self._tokens.append(Token(str(match.lastgroup), match.group(), start, stop, spaced))
        self.partner: dict[int, int] = {}
        open_brackets: list[int] = []
        for index, token in enumerate(self._tokens):
            if token.text in _OPENING:
                open_brackets.append(index)
            elif token.text in _CLOSING:
                opening = open_brackets.pop()
                self.partner[opening], self.partner[index] = index, opening

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._tokens[index]

    def __len__(self) -> int:
        return len(self._tokens)

    def text(self, first: int, last: int) -> str:
        """The characters from token ``first`` to token ``last``, both included."""
        return self.source[self[first].start : self[last].stop]

    def is_binary(self, index: int) -> bool:
        """Whether the token is a binary operator of `PRECEDENCE`."""
        return self[index].text in PRECEDENCE and self[index].spaced

    def right_end(self, index: int) -> int:
        """The last token of the right operand of the operator at ``index``."""
        limit = PRECEDENCE.get(self[index].text, 0)
        last = index
        while last + 1 < len(self):
            following = self[last + 1].text
            if following in _CLOSING or following in (",", ";", "?", ":") or following in ASSIGNMENTS:
                break
            if self.is_binary(last + 1) and PRECEDENCE[following] <= limit:
                break
            last = self.partner[last + 1] if following in _OPENING else last + 1
        return last

    def left_start(self, index: int) -> int:
        """The first token of the left operand of the operator at ``index``."""
        limit = PRECEDENCE.get(self[index].text, 0)
        first = index
        while first > 0:
            previous = self[first - 1].text
            if previous in _OPENING or previous in (",", ";", "?", ":", "}") or previous in ASSIGNMENTS:
                break
            if previous in KEYWORDS or (self.is_binary(first - 1) and PRECEDENCE[previous] < limit):
                break
            if previous in _CLOSING:
                opening = self.partner[first - 1]
                if previous == ")" and opening > 0 and self[opening - 1].text in KEYWORDS:
                    break
                first = opening
            else:
                first -= 1
        return first

    def arguments(self, opening: int) -> list[tuple[int, int]]:
        """The first and last token of each argument in the bracket that opens at ``opening``."""
        closing = self.partner[opening]
        found, first, index = [], opening + 1, opening + 1
        while index < closing:
            if self[index].text == ",":
                found.append((first, index - 1))
                first = index + 1
            index = self.partner[index] + 1 if self[index].text in _OPENING else index + 1
        return [*found, (first, closing - 1)] if first < closing else found

    def statements(self) -> list[tuple[int, int]]:
        """The first token and the semicolon of each simple statement."""
        found, first, index = [], 0, 0
        while index < len(self):
            text = self[index].text
            if text == "(":
                header = index > 0 and self[index - 1].text in ("for", "if", "while")
                index = self.partner[index]
                if header:
                    first = index + 1
            elif text == "[":
                index = self.partner[index]
            elif text in ("{", "}"):
                first = index + 1
            elif text == ";":
                found.append((first, index))
                first = index + 1
            index += 1
        return found
