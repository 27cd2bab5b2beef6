"""Faults in Python text: Triton kernels, and the functions that check, allocate and launch.

The syntax tree says what may be changed and where it stands; the change is made in the text, so that
a mutant differs from its starter in nothing else.  Only the bodies and defaults of functions are
changed: constants at the top of a module are settings.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from benchmarks.mutants.edit import Fault
from benchmarks.mutants.literals import other_numbers

__all__ = ["faults"]

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
}
_FUNCTIONS = {
    **{"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "sum": "max"},
    **{"exp": "exp2", "exp2": "exp", "log": "log2", "sqrt": "abs", "erf": "sigmoid"},
}
_MIN_MAX = {"max", "min", "maximum", "minimum"}


def faults(text: str) -> Iterator[Fault]:
    """Yield every fault in Python text that can be parsed."""
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            yield from _Function(text, function).faults()


class _Function:
    """One function of a text, and the faults that it may have."""

    def __init__(self, text: str, function: ast.FunctionDef) -> None:
        self.text = text
        self.function = function
        self.in_kernel = any("jit" in ast.unparse(one) for one in function.decorator_list)
        self._lines = [0, *itertools.accumulate(len(line) for line in text.splitlines(keepends=True))]

    def faults(self) -> Iterator[Fault]:
        defaults = [*self.function.args.defaults, *self.function.args.kw_defaults]
        for root in (*self.function.body, *(one for one in defaults if one is not None)):
            for node in ast.walk(root):
                yield from self._of(node)
        yield from self._sizes()

    def _of(self, node: ast.AST) -> Iterator[Fault]:
        if isinstance(node, ast.Compare):
            yield from self._comparison(node)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            yield from self._arithmetic(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield from self._negation(node)
        elif isinstance(node, ast.AugAssign):
            yield from self._accumulation(node)
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
            yield from self._keywords(node)
        elif isinstance(node, (ast.If, ast.IfExp)):
            yield from self._condition(node)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)):
            yield from self._statement(node)

    # Places

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt, ast.keyword))
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _segment(self, node: ast.AST) -> str:
        start, stop = self._span(node)
        return self.text[start:stop]

    def _sign(self, left: ast.AST, right: ast.AST, sign: str) -> tuple[int, int]:
        """Where the operator between two operands stands, which may have brackets around them."""
        start = self.text.index(sign, self._span(left)[1], self._span(right)[0])
        return start, start + len(sign)

    def _replace(self, kind: str, node: ast.AST, text: str) -> Fault:
        return Fault.of(kind, (*self._span(node), text))

    # Families

    def _comparison(self, node: ast.Compare) -> Iterator[Fault]:
        operator, right = node.ops[0], node.comparators[0]
        if type(operator) not in _COMPARISONS:
            return
        sign, other = _COMPARISONS[type(operator)]
        kind = "condition_negated" if sign in ("==", "!=") else "bound_inclusive"
        yield Fault.of(kind, (*self._sign(node.left, right, sign), other))
        if kind == "bound_inclusive":
            end = self._span(right)[1]
            yield Fault.of("bound_off_by_one", (end, end, " - 1"))
            yield Fault.of("bound_off_by_one", (end, end, " + 1"))

    def _arithmetic(self, node: ast.BinOp) -> Iterator[Fault]:
        sign, other = _ARITHMETIC[type(node.op)]
        start, stop = self._sign(node.left, node.right, sign)
        yield Fault.of("operator_changed", (start, stop, other))
        first, last = self._span(node)
        left, right = self.text[first:start].strip(), self.text[stop:last].strip()
        kind = "condition_dropped" if sign == "&" else "term_dropped"
        yield Fault.of(kind, (first, last, left))
        yield Fault.of(kind, (first, last, right))
        if sign in ("-", "/", "//", "%"):
            yield Fault.of("operands_swapped", (first, last, f"{right} {sign} ({left})"))

    def _negation(self, node: ast.UnaryOp) -> Iterator[Fault]:
        yield self._replace("sign_flipped", node, self._segment(node.operand))
        if isinstance(node.operand, ast.Call):  # -float("inf")
            yield self._replace("wrong_initial_value", node, "0.0")

    def _accumulation(self, node: ast.AugAssign) -> Iterator[Fault]:
        sign, other = _ARITHMETIC[type(node.op)]
        start, stop = self._sign(node.target, node.value, f"{sign}=")
        yield Fault.of("accumulate_missing", (start, stop, "="))
        yield Fault.of("operator_changed", (start, stop, f"{other}="))
        target = self._segment(node.target)
        if self.in_kernel and not target.endswith(("ptr", "ptrs")):
            narrow = f"{target} = ({target} + {self._segment(node.value)}).to(tl.float16).to({target}.dtype)"
            yield self._replace("accumulate_in_half", node, narrow)

    def _constant(self, node: ast.Constant) -> Iterator[Fault]:
        if isinstance(node.value, bool):
            yield self._replace("constant_changed", node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            for kind, text in other_numbers(self._segment(node)):
                yield self._replace(kind, node, text)

    def _call(self, node: ast.Call) -> Iterator[Fault]:
        if isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, self._segment(node.func.value)
            if name in ("to", "contiguous"):
                yield self._replace("cast_dropped" if name == "to" else "copy_dropped", node, owner)
            elif owner == "tl" and name in _FUNCTIONS:
                kind = "min_max_swapped" if name in _MIN_MAX else "function_changed"
                yield self._replace(kind, node.func, f"tl.{_FUNCTIONS[name]}")
            elif owner == "tl" and name == "zeros":
                yield self._replace("wrong_initial_value", node, f"({self._segment(node)} + 1)")
            elif name == "cdiv":
                quotient = " // ".join(f"({self._segment(one)})" for one in node.args)
                yield self._replace("bound_off_by_one", node, quotient)
            elif name == "dot" and len(node.args) == 3:
                yield Fault.of("accumulate_missing", (self._span(node.args[1])[1], self._span(node.args[2])[1], ""))
        for left, right in zip(node.args, node.args[1:], strict=False):
            if self._segment(left) != self._segment(right):
                yield Fault.of(
                    "arguments_swapped",
                    (*self._span(left), self._segment(right)),
                    (*self._span(right), self._segment(left)),
                )

    def _keywords(self, node: ast.Call) -> Iterator[Fault]:
        given = {keyword.arg: keyword for keyword in node.keywords}
        if "mask" in given:
            yield self._without(node, "mask_dropped", [given[name] for name in ("mask", "other") if name in given])
        if "other" in given:
            yield self._without(node, "fill_dropped", [given["other"]])
        for name in ("dtype", "input_precision"):
            if self.in_kernel and name in given:
                narrow = {"dtype": "tl.float16", "input_precision": '"tf32"'}[name]
                yield self._replace("precision_lowered", given[name].value, narrow)
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "to"
            and self._segment(node.args[0]) == "tl.float32"
        ):
            yield self._replace("precision_lowered", node.args[0], "tl.float16")

    def _without(self, node: ast.Call, kind: str, keywords: Sequence[ast.keyword]) -> Fault:
        """A fault that takes keyword arguments, and the comma before each, out of a call."""
        edits = []
        for keyword in keywords:
            start, stop = self._span(keyword)
            edits.append((self.text.rindex(",", 0, start), stop, ""))
        return Fault.of(kind, *edits)

    def _condition(self, node: ast.If | ast.IfExp) -> Iterator[Fault]:
        if isinstance(node, ast.IfExp):
            yield self._replace("condition_dropped", node, self._segment(node.body))
            yield self._replace("condition_dropped", node, self._segment(node.orelse))
            return
        for value in ("True", "False"):
            yield self._replace("condition_dropped", node.test, value)

    def _statement(self, node: ast.Assign | ast.AugAssign | ast.Expr) -> Iterator[Fault]:
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
            return
        if not isinstance(node, ast.Assign) or self._is_known(node):
            yield self._replace("statement_dropped", node, "pass")

    def _is_known(self, node: ast.Assign) -> bool:
        """Whether the variables that a statement assigns have a value already."""
        known = {one.arg for one in self.function.args.args}
        for other in ast.walk(self.function):
            if isinstance(other, ast.Assign) and other.lineno < node.lineno:
                known |= _names(other)
        return bool(_names(node)) and _names(node) <= known

    def _sizes(self) -> Iterator[Fault]:
        """Wrong strides and bounds: a size that a kernel takes, in the place of another."""
        names = [
            one.arg
            for one in self.function.args.args
            if self.in_kernel and one.annotation is None and not one.arg.endswith("ptr") and _is_size(one.arg)
        ]
        uses = [
            child
            for parent in ast.walk(self.function)
            if isinstance(parent, (ast.BinOp, ast.Compare))
            for child in ast.iter_child_nodes(parent)
            if isinstance(child, ast.Name) and child.id in names
        ]
        for use in uses if len(names) > 1 else []:
            yield self._replace("wrong_size", use, names[(names.index(use.id) + 1) % len(names)])


def _names(node: ast.Assign) -> set[str]:
    return {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _is_size(name: str) -> bool:
    return name not in ("eps", "scale_log2", "rows", "cols")
