"""What was verified about one kernel, and whether a call lies within it.

A run's record names each case that passed by its label, and each set of sizes that was timed (whose
outputs were checked while it was timed).  From these follow the sizes, dtypes and options that a
kernel may be called with.  Sizes of row-wise operations are counted over all leading dimensions,
because that is how a kernel is called here: ``x[M, N]``.

Whether a call lies within it is `coverage`'s question.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from autokernel.integration.coverage import Coverage, Options, Sizes, without_numbers
from autokernel.measurement import Measurement
from autokernel.ops.spec import DTYPES, KernelSpec, Shape
from autokernel.verdict import Status, Verdict

__all__ = ["RULES", "Evidence", "PassedCase", "defaults_of", "folded", "number_ranges", "passed_cases"]

RULES = ("verified", "checked", "range")
_LAYOUTS = ("padded", "transposed", "offset", "permuted", "cut")  # of the verifier's, those that `kernels` tells apart


def defaults_of(spec: KernelSpec) -> dict[str, Any]:
    """The operation's options with their defaults, as its reference's signature gives them."""
    return spec.defaults()


def folded(shape: Shape) -> Sizes:
    """The sizes in order, a leading dimension ``B`` of a row-wise operation multiplied into ``M``.

    >>> folded({"B": 2, "M": 3, "N": 65})
    (('M', 6), ('N', 65))
    """
    if "B" in shape and "M" in shape:
        shape = {name: size * shape["B"] if name == "M" else size for name, size in shape.items() if name != "B"}
    return tuple(sorted(shape.items()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassedCase:
    """One case that passed.

    Attributes:
        shape: Sizes by name, as the spec's ``make_inputs`` takes them.
        dtype: Name of the dtype.
        layout: As in `Case`.
        options: All of the operation's options, sorted by name.
    """

    shape: Shape
    dtype: str
    layout: str
    options: Options


def passed_cases(spec: KernelSpec, verdict: Verdict, timed: Iterable[Measurement | None]) -> list[PassedCase]:
    """What an accepted verdict and the measurements that followed it have covered, in their order."""
    labels = [case.label for stage in verdict.stages for case in stage.cases if case.status is Status.PASS]
    labels += [case.label for one in timed if one is not None for case in one.cases]
    defaults = defaults_of(spec)
    read = [_read_label(label, defaults) for label in labels]
    return [case for case in read if case is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence(Coverage):
    """What is known about one kernel text.

    Attributes:
        origin: Where the verdict is recorded, in words; "" for a kernel without one.
        layouts: The memory layouts of inputs that passed, besides contiguous.
    """

    origin: str = ""
    layouts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, spec: KernelSpec, verdict: Verdict, timed: Iterable[Measurement | None], origin: str) -> Evidence:
        """Collect what an accepted verdict and the measurements that followed it have covered."""
        passed = passed_cases(spec, verdict, timed)
        return cls(
            origin=origin,
            cases=frozenset((folded(case.shape), case.dtype, without_numbers(case.options)) for case in passed),
            numbers=number_ranges(passed),
            layouts=frozenset(case.layout for case in passed),
        )

    def concerns(self, fixed: Mapping[str, int], dtype: str) -> bool:
        """Whether any case that passed has these sizes, which a place in a model never changes."""
        return any(its_dtype == dtype and fixed.items() <= dict(one).items() for one, its_dtype, _ in self.cases)

    def nearest(self, sizes: Sizes, dtype: str, count: int = 3) -> list[tuple[Sizes, str]]:
        """The verified sizes that differ by the smallest factors from ``sizes``, in that dtype where there are any."""
        known = {(one, its_dtype) for one, its_dtype, _ in self.cases}
        alike = [one for one in known if one[1] == dtype] or list(known)
        return sorted(alike, key=lambda one: (_factor(sizes, one[0]), one))[:count]


def _factor(sizes: Sizes, others: Sizes) -> float:
    """By what factor two sets of sizes differ, over all sizes; at least 1."""
    known = dict(others)
    return math.prod(max(size, known[name]) / min(size, known[name]) for name, size in sizes if name in known)


def number_ranges(passed: Iterable[PassedCase]) -> dict[str, tuple[float, float]]:
    """Smallest and largest verified value of each option that is a number."""
    values: dict[str, set[float]] = {}
    for case in passed:
        for name, value in case.options:
            if isinstance(value, float):
                values.setdefault(name, set()).add(value)
    return {name: (min(found), max(found)) for name, found in values.items()}


def _read_label(label: str, defaults: Mapping[str, Any]) -> PassedCase | None:
    """The case of a `Case.label`; None for a label that is no plain case."""
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
    return PassedCase(shape=sizes, dtype=dtype, layout=layout, options=tuple(sorted(options.items())))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
