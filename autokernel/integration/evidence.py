"""What was verified about one kernel, and whether a call lies within it.

A run's record names each case that passed by its label, and each set of sizes that was timed (whose
outputs were checked while it was timed).  From these follow the sizes, dtypes and options that a
kernel may be called with.  Sizes of row-wise operations are counted over all leading dimensions,
because that is how a kernel is called here: ``x[M, N]``.

A number such as ``eps`` is within what was verified if it lies between two verified values; any
other option (``causal``, ``activation``) must have been verified together with the sizes.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from autokernel.measurement import Measurement
from autokernel.ops.spec import DTYPES, KernelSpec, Shape
from autokernel.verdict import Status, Verdict

__all__ = ["RULES", "Evidence", "defaults_of", "folded"]

RULES = ("verified", "checked", "range")
_NUMBER = "a number"
_LAYOUTS = ("padded", "transposed", "offset", "permuted", "cut")  # of the verifier's, those that `kernels` tells apart
Sizes = tuple[tuple[str, int], ...]
Options = tuple[tuple[str, Any], ...]
_Case = tuple[Sizes, str, Options]  # plain tuples, which torch.compile can look up while it traces


def defaults_of(spec: KernelSpec) -> dict[str, Any]:
    """The operation's options with their defaults, as its reference's signature gives them."""
    parameters = inspect.signature(spec.reference).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def folded(shape: Shape) -> Sizes:
    """The sizes in order, a leading dimension ``B`` of a row-wise operation multiplied into ``M``.

    >>> folded({"B": 2, "M": 3, "N": 65})
    (('M', 6), ('N', 65))
    """
    if "B" in shape and "M" in shape:
        shape = {name: size * shape["B"] if name == "M" else size for name, size in shape.items() if name != "B"}
    return tuple(sorted(shape.items()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known about one kernel text.

    Attributes:
        origin: Where the verdict is recorded, in words; "" for a kernel without one.
        cases: Sizes, dtype and options (numbers left out) of each case that passed.
        numbers: Smallest and largest verified value of each option that is a number.
        layouts: The memory layouts of inputs that passed, besides contiguous.
    """

    origin: str = ""
    cases: frozenset[_Case] = frozenset()
    numbers: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    layouts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: KernelSpec, verdict: Verdict, timed: Iterable[Measurement | None], origin: str) -> Evidence:
        """Collect what an accepted verdict and the measurements that followed it have covered."""
        labels = [case.label for stage in verdict.stages for case in stage.cases if case.status is Status.PASS]
        labels += [case.label for one in timed if one is not None for case in one.cases]
        defaults = defaults_of(spec)
        cases: set[_Case] = set()
        values: dict[str, set[float]] = {name: set() for name in defaults}
        layouts: set[str] = set()
        for label in labels:
            read = _read_label(label, defaults)
            if read is None:
                continue
            sizes, dtype, layout, options = read
            for name, value in options:
                if isinstance(value, float):
                    values[name].add(value)
            layouts.add(layout)
            cases.add((sizes, dtype, _without_numbers(options)))
        numbers = {name: (min(found), max(found)) for name, found in values.items() if found}
        return cls(origin=origin, cases=frozenset(cases), numbers=numbers, layouts=frozenset(layouts))

    def objection(self, sizes: Sizes, dtype: str, options: Options, *, ranges: bool = False) -> str:
        """Why a call is not covered, in a few words; "" if it is.

        Args:
            sizes: From `folded`.
            dtype: Of all floating inputs.
            options: All of the operation's options.
            ranges: Accept sizes between the smallest and the largest that passed, each by itself.
        """
        for name, value in options:
            low, high = self.numbers.get(name, (0.0, -1.0))
            if isinstance(value, float) and not low <= value <= high:
                return f"{name}={value:g} was not verified"
        plain = _without_numbers(options)
        if (sizes, dtype, plain) in self.cases:
            return ""
        alike = [one for one, its_dtype, its_options in self.cases if its_dtype == dtype and its_options == plain]
        words = " ".join(f"{name}={size}" for name, size in sizes)
        if not alike:
            chosen = "".join(f", {name}={value}" for name, value in options)
            return f"{dtype}{chosen} was not verified"
        if ranges and all(_between(name, size, alike) for name, size in sizes):
            return ""
        return f"{words} {dtype} was not verified"

    def concerns(self, fixed: Mapping[str, int], dtype: str) -> bool:
        """Whether any case that passed has these sizes, which a place in a model never changes."""
        return any(its_dtype == dtype and fixed.items() <= dict(one).items() for one, its_dtype, _ in self.cases)


def _between(name: str, size: int, alike: Iterable[Sizes]) -> bool:
    seen = [dict(sizes).get(name, size) for sizes in alike]
    return min(seen) <= size <= max(seen)


def _without_numbers(options: Options) -> Options:
    return tuple((name, _NUMBER if isinstance(value, float) else value) for name, value in sorted(options))


def _read_label(label: str, defaults: Mapping[str, Any]) -> tuple[Sizes, str, str, Options] | None:
    """Sizes, dtype, layout and options of a `Case.label`; None for a label that is no plain case."""
    sizes: dict[str, int] = {}
    options = dict(defaults)
    dtype, layout = "", "contiguous"
    for word in label.split():
        name, equals, text = word.partition("=")
        if not equals:
            dtype = word if word in DTYPES else dtype
            layout = word if word in _LAYOUTS else layout
        elif name in defaults:
            options[name] = _value(text)
        elif text.isdigit():
            sizes[name] = int(text)
        else:
            return None
    if not sizes or not dtype:
        return None
    return folded(sizes), dtype, layout, tuple(sorted(options.items()))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
