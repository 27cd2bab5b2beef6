"""What is to be computed: `KernelSpec`, the one description of an operation.

A spec holds a reference in plain PyTorch, a maker of inputs, and the sizes to try.  The rest
(cases, layouts, adversarial values, tolerances, cost) is derived when it is not given, so a user's
own operation needs three fields.  How a candidate is judged against a spec is the verifier's
business; how fast it is, the timing's.

Units: bytes, FLOP.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autokernel.errors import InvalidSpec
from autokernel.hints import did_you_mean

__all__ = ["DTYPES", "Case", "Fill", "KernelSpec", "Magnitude", "Shape", "TimingCase", "dtype_named"]

Shape = Mapping[str, int]
Fill = Callable[[tuple[Tensor, ...], Shape, torch.Generator], tuple[Tensor, ...]]

DTYPES: dict[str, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float8_e4m3fn": torch.float8_e4m3fn,
}


def dtype_named(name: str) -> torch.dtype:
    """Return the torch dtype called ``name``, one of `DTYPES`.

    Raises:
        InvalidSpec: The name is none of them.
    """
    try:
        return DTYPES[name]
    except KeyError:
        raise InvalidSpec(f"unknown dtype {name!r}{did_you_mean(name, DTYPES)}; known: {', '.join(DTYPES)}") from None


@dataclasses.dataclass(frozen=True)
class Magnitude:
    """The sizes that a correct kernel's rounding errors scale with, element by element.

    Attributes:
        accumulated: float64, broadcastable to the output: the sum of the absolute values of the
            terms that are added in float32 (for a matmul, ``|A| @ |B|``).
        rounded: float64 or None: root of the sum of squares of the contributions of intermediate
            values that a kernel may round to the inputs' dtype (the probabilities of an attention,
            the hidden layer of an MLP).
    """

    accumulated: Tensor
    rounded: Tensor | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One set of inputs that a candidate is tried on.

    Attributes:
        shape: Sizes by name, as the spec's ``make_inputs`` takes them.
        dtype: A name of `DTYPES`, handed to the spec's ``make_inputs``.
        fill: Name of the value pattern: ``normal`` or one of the spec's fills.
        layout: How the strided inputs, or one of them, lie in memory; see `autokernel.verifier.layouts`.
        options: Keyword arguments of ``kernel_fn``; empty means its defaults.
    """

    shape: Shape
    dtype: str
    fill: str = "normal"
    layout: str = "contiguous"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The case in one line, such as ``M=4 N=1023 float16 large causal=False``."""
        words = [f"{name}={size}" for name, size in self.shape.items()]
        words.append(self.dtype)
        words += [word for word in (self.fill,) if word != "normal"]
        words += [word for word in (self.layout,) if word != "contiguous"]
        words += [f"{name}={value}" for name, value in self.options.items()]
        return " ".join(words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimingCase:
    """One set of inputs that candidates are timed on.

    Attributes:
        shape: Sizes by name.
        dtype: Name of the dtype.
        options: Keyword arguments of ``kernel_fn``.
        weight: Share of the model's time that this case stands for; only ratios matter.
        layout: How the strided inputs, or one of them, lie in memory, as in `Case`.
    """

    shape: Shape
    dtype: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    layout: str = "contiguous"

    @property
    def case(self) -> Case:
        """What is timed, as a case."""
        return Case(shape=self.shape, dtype=self.dtype, layout=self.layout, options=self.options)

    @property
    def label(self) -> str:
        return self.case.label


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """An operation: what it computes, on which inputs, and what it costs at the least.

    Only ``name``, ``reference``, ``make_inputs`` and ``shapes`` are needed.

    Attributes:
        name: The operation's name; a kernel file states it as ``KERNEL_TYPE``.
        reference: ``reference(*inputs, **options) -> Tensor`` in plain PyTorch.  It is called with
            float64 inputs to obtain golden values, and must compute in the dtype of its inputs.
        make_inputs: ``make_inputs(shape, dtype, generator) -> tuple of tensors`` on the
            generator's device; every random number comes from the generator.  A ValueError says that
            the operation is not defined for such sizes, and why.
        shapes: Sizes for the verification sweep, small enough for Triton's interpreter
            (about 100 000 elements at most).
        large_shapes: Further sizes for the sweep, tried on real devices only.
        edge_shapes: Sizes that blocks do not divide (1023, 4097, 1 ...).  Derived when None.
        timing_shapes: Sizes that candidates are timed on; the first is the default.  The largest
            of ``shapes`` and ``large_shapes`` when empty.
        cpu_timing_shapes: The same for a CPU; ``timing_shapes`` when empty.
        dtypes: The dtypes in which the operation is defined: each is one of ``make_inputs``, which may make
            some inputs in another one (float32 scales, packed integers).
        options: Keyword arguments to try in the sweep; the first entry is the default.
        extensions: Further keyword arguments, each entry another form of the operation that a kernel may
            leave out.  A ``kernel_fn`` that takes them is tried on them in every stage, as on the default;
            one that does not is judged for the default alone, and serves no target that asks for them.
        fills: Adversarial value patterns by name.  Derived when None.
        strided_inputs: Indices of the inputs that callers may pass as strided views.
        result_dtypes: Accepted dtypes of the result: names, ``input`` for the first floating input's
            dtype, or the name of an option whose value names it (``out_dtype``).
        baseline: What PyTorch users run today, ``baseline(*inputs, **options)``; ``reference``
            when None, which does not do for dtypes of 8 bits.  Timed as "pytorch", and the source of
            the error that PyTorch itself makes.
        composed: A composition of elementary operators, timed as "composed" on request.
        flops: FLOP of one call for a shape.
        bytes_moved: Least bytes moved to and from memory, for a shape and an item size.  Inputs
            plus output when None.
        reduction_length: The number of terms that are added up for one element of the result, for
            a shape.  The largest size when None.
        magnitude: ``magnitude(*float64 inputs, **options) -> Magnitude``.  Estimated by perturbing
            the inputs when None.
        description: One line for people and agents: the formula and the layout.
        signature: ``kernel_fn``'s parameters as text, such as ``(x, weight, eps=1e-6)``.
    """

    name: str
    reference: Callable[..., Tensor]
    make_inputs: Callable[[Shape, torch.dtype, torch.Generator], tuple[Tensor, ...]]
    shapes: Sequence[Shape]
    large_shapes: Sequence[Shape] = ()
    edge_shapes: Sequence[Shape] | None = None
    timing_shapes: Sequence[Shape] = ()
    cpu_timing_shapes: Sequence[Shape] = ()
    dtypes: Sequence[str] = ("float16", "bfloat16", "float32")
    options: Sequence[Mapping[str, Any]] = ({},)
    extensions: Sequence[Mapping[str, Any]] = ()
    fills: Mapping[str, Fill] | None = None
    strided_inputs: Sequence[int] = (0,)
    result_dtypes: Sequence[str] = ("input",)
    baseline: Callable[..., Tensor] | None = None
    composed: Callable[..., Tensor] | None = None
    flops: Callable[[Shape], float] | None = None
    bytes_moved: Callable[[Shape, int], float] | None = None
    reduction_length: Callable[[Shape], int] | None = None
    magnitude: Callable[..., Magnitude] | None = None
    description: str = ""
    signature: str = ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InvalidSpec(f"the spec's name {self.name!r} is no identifier; use letters, digits and _")
        if not self.shapes:
            raise InvalidSpec(f"spec {self.name!r} has no shapes; give at least one, such as {{'n': 1024}}")
        for name in self.dtypes:
            if dtype_named(name).itemsize == 1 and self.baseline is None:
                raise InvalidSpec(
                    f"spec {self.name!r} has no baseline, and PyTorch does not compute the reference in {name}; give a "
                    "baseline that converts its inputs first"
                )
        for shape in (*self.shapes, *self.large_shapes, *self.timing_shapes, *self.cpu_timing_shapes):
            if not shape or not all(isinstance(size, int) and size > 0 for size in shape.values()):
                raise InvalidSpec(
                    f"spec {self.name!r} has the shape {dict(shape)!r}; a shape maps names to positive integers"
                )

    def option_names(self, needed: Collection[str] = ()) -> tuple[list[str], list[str]]:
        """The keyword arguments that ``kernel_fn`` must take, and those that it may leave out.

        Args:
            needed: Names that a target asks for, and which it must take therefore.
        """
        extensions = {name for options in self.extensions for name in options}
        required = {name for options in self.options for name in options} | extensions.intersection(needed)
        return sorted(required), sorted(extensions - required)

    def defaults(self) -> dict[str, Any]:
        """The keyword arguments with their defaults, as the reference's signature gives them."""
        parameters = inspect.signature(self.reference).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not one.empty}

    def dtypes_of_result(self, inputs: Sequence[Tensor], options: Mapping[str, Any]) -> set[str]:
        """The names of the dtypes that the result of a call may have; see ``result_dtypes``."""
        floating = next(value.dtype for value in inputs if value.is_floating_point())
        chosen = {**self.defaults(), **options, "input": str(floating).removeprefix("torch.")}
        return {str(chosen.get(name, name)) for name in self.result_dtypes}

    def terms(self, shape: Shape) -> int:
        """How many terms are added up for one element of the result: `reduction_length`, or the largest size."""
        return self.reduction_length(shape) if self.reduction_length else max(shape.values())

    def usual_dtype(self, *, gpu: bool) -> str:
        """The dtype of the timing cases where none is asked for: the first, but float32 on a CPU."""
        return "float32" if not gpu and "float32" in self.dtypes else self.dtypes[0]
