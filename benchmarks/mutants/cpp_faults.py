"""Faults in C++ and CUDA C++ text.

Each function below looks for one family of faults and yields the places.  Offsets are those of the
text that is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from benchmarks.mutants.cpp_tokens import ASSIGNMENTS, KEYWORDS, Tokens
from benchmarks.mutants.edit import Fault
from benchmarks.mutants.literals import other_numbers

__all__ = ["faults"]

_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&&": "||", "||": "&&"}
_FUNCTIONS = {
    **{"max": "min", "min": "max", "fmaxf": "fminf", "fminf": "fmaxf"},
    **{"exp": "exp2", "expf": "exp2f", "log": "log2", "logf": "log2f", "sqrt": "cbrt", "sqrtf": "cbrtf"},
    **{"erf": "tanh", "erff": "tanhf"},
}
_HALF = "to_float(from_float<float16>({}))"


def faults(text: str) -> Iterator[Fault]:
    """Yield every fault of every family in C++ text."""
    tokens = Tokens(text)
    for family in _FAMILIES:
        yield from family(tokens)


def _comparisons(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        if token.text in _COMPARISONS and token.spaced:
            kind = "condition_negated" if token.text in ("==", "!=") else "bound_inclusive"
            yield Fault.of(kind, (token.start, token.stop, _COMPARISONS[token.text]))
            if kind == "bound_inclusive":
                end = tokens[tokens.right_end(index)].stop
                yield Fault.of("bound_off_by_one", (end, end, " - 1"))
                yield Fault.of("bound_off_by_one", (end, end, " + 1"))


def _arithmetic(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        if not (token.text in _ARITHMETIC and token.spaced):
            continue
        yield Fault.of("operator_changed", (token.start, token.stop, _ARITHMETIC[token.text]))
        first, last = tokens.left_start(index), tokens.right_end(index)
        kind = "condition_dropped" if token.text in ("&&", "||") else "term_dropped"
        yield Fault.of(kind, (token.start, tokens[last].stop, ""))
        yield Fault.of(kind, (tokens[first].start, tokens[index + 1].start, ""))
        if token.text in ("-", "/", "%"):
            left, right = tokens.text(first, index - 1), tokens.text(index + 1, last)
            yield Fault.of("operands_swapped", (tokens[first].start, tokens[last].stop, f"{right} {token.text} {left}"))


def _accumulations(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        if token.text not in ("+=", "-=", "*=", "/="):
            continue
        yield Fault.of("accumulate_missing", (token.start, token.stop, "="))
        other = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}[token.text]
        yield Fault.of("operator_changed", (token.start, token.stop, other))
        last = tokens.right_end(index)
        if token.text == "+=" and tokens[last + 1].text == ";":
            first = tokens.left_start(index)
            target, term = tokens.text(first, index - 1), tokens.text(index + 1, last)
            narrow = _HALF.format(f"{target} + ({term})")
            yield Fault.of("accumulate_in_half", (tokens[first].start, tokens[last].stop, f"{target} = {narrow}"))


def _numbers(tokens: Tokens) -> Iterator[Fault]:
    for token in tokens:
        if token.kind == "number":
            for kind, text in other_numbers(token.text):
                yield Fault.of(kind, (token.start, token.stop, text))


def _signs(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.text == "-" and not token.spaced and following is not None and following.start == token.stop:
            yield Fault.of("sign_flipped", (token.start, token.stop, ""))
            if following.text == "INFINITY":
                yield Fault.of("wrong_initial_value", (token.start, following.stop, "0.0f"))


def _initialisers(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        if token.text == "=" and [one.text for one in tokens[index + 1 : index + 3]] == ["{", "}"]:
            yield Fault.of("initial_value_missing", (tokens[index - 1].stop, tokens[index + 2].stop, ""))


def _functions(tokens: Tokens) -> Iterator[Fault]:
    for token in tokens:
        if token.text in _FUNCTIONS:
            kind = "min_max_swapped" if token.text in ("max", "min", "fmaxf", "fminf") else "function_changed"
            yield Fault.of(kind, (token.start, token.stop, _FUNCTIONS[token.text]))


def _calls(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        if token.text != "(" or index == 0 or tokens[index - 1].text in KEYWORDS:
            continue
        closing = tokens.partner[index]
        if closing + 1 < len(tokens) and tokens[closing + 1].text == "{":  # the parameters of a definition
            continue
        arguments = tokens.arguments(index)
        for left, right in zip(arguments, arguments[1:], strict=False):
            one, other = tokens.text(*left), tokens.text(*right)
            if one != other and "{" not in one + other:
                yield Fault.of(
                    "arguments_swapped",
                    (tokens[left[0]].start, tokens[left[1]].stop, other),
                    (tokens[right[0]].start, tokens[right[1]].stop, one),
                )


def _conditions(tokens: Tokens) -> Iterator[Fault]:
    for index, token in enumerate(tokens):
        if token.text == "?":
            first, middle = tokens.left_start(index), tokens.right_end(index)
            last = tokens.right_end(middle + 1)
            for kept in (tokens.text(index + 1, middle), tokens.text(middle + 2, last)):
                yield Fault.of("condition_dropped", (tokens[first].start, tokens[last].stop, kept))
        elif token.text == "if":
            opening = index + 1
            for value in ("true", "false"):
                inside = (tokens[opening].stop, tokens[tokens.partner[opening]].start, value)
                yield Fault.of("condition_dropped", inside)


def _statements(tokens: Tokens) -> Iterator[Fault]:
    for first, last in tokens.statements():
        head = tokens[first]
        if head.text in KEYWORDS or last <= first + 1:
            continue
        assigned = any(tokens[i].text in ASSIGNMENTS and tokens[i].spaced for i in range(first, last))
        called = head.kind == "name" and tokens[first + 1].text in ("(", "<") and not tokens[first + 1].spaced
        declared = head.kind == "name" and tokens[first + 1].kind == "name"
        if called or (assigned and not declared and not _is_declaration(tokens, first, last)):
            kind = "synchronisation_dropped" if "sync" in head.text else "statement_dropped"
            yield Fault.of(kind, (head.start, tokens[last].start, ""))


def _is_declaration(tokens: Tokens, first: int, last: int) -> bool:
    """Whether a statement such as ``T* out = y`` or ``std::vector<float> a(n)`` declares a variable."""
    return bool(re.match(r"[\w:]+(<[^;=]*?>)?[*&]* \w+( =|\[|\(|,)", tokens.text(first, last)))


def _sizes(tokens: Tokens) -> Iterator[Fault]:
    """Wrong strides and bounds: a size that a function takes, in the place of another."""
    for opening, closing in tokens.partner.items():
        if not (opening < closing and tokens[opening].text == "(" and closing + 1 < len(tokens)):
            continue
        if tokens[closing + 1].text != "{":
            continue
        names = [
            tokens[last].text
            for first, last in tokens.arguments(opening)
            if [one.text for one in tokens[first:last]] == ["int64_t"]
        ]
        for index in range(closing + 2, tokens.partner[closing + 1]):
            name = tokens[index].text
            if len(names) < 2 or name not in names:
                continue
            near = tokens[index - 1].text, tokens[index + 1].text
            if any(one in ("*", "/", "%", "<", "<=", ":", ";") for one in near):
                other = names[(names.index(name) + 1) % len(names)]
                yield Fault.of("wrong_size", (tokens[index].start, tokens[index].stop, other))


def _precision(tokens: Tokens) -> Iterator[Fault]:
    """Sums in a narrower type, and all offsets in 32 bits."""
    for token in tokens:
        if token.text == "double":
            yield Fault.of("precision_lowered", (token.start, token.stop, "float"))
    narrowed = [
        (token.start, token.stop, "int32_t")
        for token, following in zip(tokens, tokens[1:], strict=False)
        if token.text == "int64_t" and following.text not in ("*", ">")
    ]
    if narrowed:
        yield Fault.of("offsets_narrowed", *narrowed)


_FAMILIES: tuple[Callable[[Tokens], Iterator[Fault]], ...] = (
    *(_comparisons, _arithmetic, _accumulations, _numbers, _signs, _initialisers, _functions, _calls),
    *(_conditions, _statements, _sizes, _precision),
)
