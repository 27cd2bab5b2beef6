"""Split source into coloured tokens, line by line.

A kernel.py is Python; what stands in its ``CPP_SRC`` or ``CUDA_SRC`` is C++ and is coloured as such.
Nothing is executed or imported, and broken source is coloured as far as it makes sense.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pygments.lexers import CppLexer, PythonLexer
from pygments.token import Token

__all__ = ["Piece", "highlight", "plain", "visible"]

Piece = tuple[str, str]  # a text, and the class of its colour ("" for none)

MOST_CHARACTERS = 200_000
_NATIVE = re.compile(r"(?:CPP_SRC|CUDA_SRC)\s*=\s*[rR]?('''|\"\"\")(.*?)\1", re.DOTALL)
_KINDS = (
    (Token.Comment, "c"),
    (Token.Literal.String, "s"),
    (Token.Literal.Number, "n"),
    (Token.Keyword, "k"),
    (Token.Name.Decorator, "d"),
    (Token.Name.Function, "f"),
    (Token.Name.Class, "f"),
    (Token.Name.Builtin, "b"),
    (Token.Operator.Word, "k"),
)


@lru_cache(maxsize=64)
def highlight(source: str) -> tuple[tuple[Piece, ...], ...]:
    """The tokens of each line of ``source``, without line ends; plain text when it is very long."""
    lines = source.split("\n")
    if len(source) > MOST_CHARACTERS:
        return tuple((plain(line),) for line in lines)
    found: list[list[Piece]] = [[]]
    for text, kind in _tokens(source):
        first, *rest = text.split("\n")
        found[-1] += [(first, kind)] if first else []
        for part in rest:
            found.append([(part, kind)] if part else [])
    coloured = ["".join(text for text, _ in line) for line in found]
    if coloured[: len(lines)] != lines:  # a lexer that changed the text is not believed
        return tuple((plain(line),) for line in lines)
    return tuple(tuple(line) for line in found[: len(lines)])


def plain(line: str) -> Piece:
    """A line without colours."""
    return (line, "")


def visible(text: str) -> str:
    """Text as it is to be shown: what would be invisible, or turn the reading direction, is spelled out.

    >>> visible("a\\u202eb\\tc")
    'a\\\\u202eb    c'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") else char
        for char in text.replace("\t", "    ")
    )


def _tokens(source: str) -> Iterator[Piece]:
    begin = 0
    for native in _NATIVE.finditer(source):
        yield from _lex(PythonLexer, source[begin : native.start(1)])
        yield native.group(1), "s"
        yield from _lex(CppLexer, native.group(2))
        yield native.group(1), "s"
        begin = native.end()
    yield from _lex(PythonLexer, source[begin:])


def _lex(lexer: Any, text: str) -> Iterator[Piece]:
    for kind, value in lexer(stripnl=False, ensurenl=False).get_tokens(text):
        yield value, next((name for parent, name in _KINDS if kind in parent), "")
