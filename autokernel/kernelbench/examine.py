"""What a problem file is: its inputs and weights, which of its sizes vary, and on which values it can be tried.

The file is executed here, as a spec file is.  As much as possible is found on the meta device, where nothing is
computed, because the benchmark's sizes are large.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import keyword
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from autokernel.errors import InvalidSpec, UsageError
from autokernel.ops.problem import BATCH, WHOLE, Problem, ProblemSpec, counted, patterns, problem_spec
from autokernel.ops.spec import Case, Shape, dtype_named
from autokernel.verifier.golden import compare, golden
from autokernel.verifier.selftest import check_spec
from autokernel.verifier.trial import make_case_inputs

__all__ = ["Facts", "Refused", "examine", "execute"]

_CAPS = (2, 4, 7, 16, 33, 64, 128, 256)
_SMALL_ELEMENTS = 60_000  # of inputs, for a case that Triton's interpreter can be asked for
_MOST_EDGES = 8


class Refused(UsageError):
    """A problem that cannot be judged; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What was found out about a problem.

    Attributes:
        name: Of its spec.
        inputs: Names of the tensors among the arguments of a call.
        arguments: All arguments as an expression of those names and of the scalars', such as ``x, [h, c]``.
        scalars: Place and value of each number among the arguments, by name.
        weights: Sizes of the weights by name.
        own_shape: The sizes of the problem.
        shapes: Small sizes.
        edge_shapes: Sizes that blocks do not divide.
        patterns: Value patterns that PyTorch is right on.
        dtype: What it computes in.
        training: The model's mode.
        exact: The result is integers.
        cost: FLOP and terms where they cannot be found for each shape, else None.
        made_with: The arguments of the model's making as an expression, or "" if they have none.
        notes: What a reader must know.
    """

    name: str
    inputs: tuple[str, ...]
    arguments: str
    scalars: Mapping[str, tuple[int, float]]
    weights: Mapping[str, tuple[int, ...]]
    own_shape: Shape
    shapes: tuple[Shape, ...]
    edge_shapes: tuple[Shape, ...]
    patterns: tuple[str, ...]
    dtype: str
    training: bool
    exact: bool
    cost: tuple[float, int] | None
    made_with: str
    notes: tuple[str, ...]

    @property
    def parameters(self) -> list[str]:
        """Names of the weights as they stand in a signature."""
        return [identifier(name) for name in self.weights]

    def spec(self, names: dict[str, Any]) -> ProblemSpec:
        """The spec of the file whose names are given."""
        return problem_spec(names, **self.settings())

    def settings(self) -> dict[str, Any]:
        """The arguments of `problem_spec`."""
        options = [f"{word}={value!r}" for word, (_place, value) in self.scalars.items()]
        signature = f"({', '.join([*self.inputs, *self.parameters, *options])})"
        kept = ("name", "inputs", "scalars", "weights", "own_shape", "shapes", "edge_shapes", "dtype")
        settings = {word: getattr(self, word) for word in (*kept, "training", "exact", "cost")}
        description = f"the Model of a KernelBench problem, called with ({self.arguments})"
        return {**settings, "chosen": self.patterns, "description": description, "signature": signature}


def identifier(name: str) -> str:
    """A name as Python takes it: ``fc.weight`` becomes ``fc_weight``."""
    word = re.sub(r"\W", "_", name)
    return f"{word}_" if keyword.iskeyword(word) or not word.isidentifier() else word


def execute(text: str, file: str) -> dict[str, Any]:
    """Execute a problem file and return its names.

    Raises:
        Refused: It cannot be executed, or lacks a name.
    """
    module = types.ModuleType(f"autokernel_problem_{identifier(file.rpartition('/')[2].removesuffix('.py'))}")
    module.__file__ = file
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except Exception as error:
        raise Refused(f"running it raised {type(error).__name__}: {_first_line(error)}") from error
    names = module.__dict__
    missing = [word for word in ("Model", "get_inputs") if not callable(names.get(word))]
    if missing:
        raise Refused(f"it defines no {' and no '.join(missing)}, so it is no problem in KernelBench's format")
    return names


def examine(text: str, file: str, *, name: str, device: str, dtype: str = "float32", most_bytes: int) -> Facts:
    """Find out what must be known to judge candidates for a problem.

    Args:
        text: Of the problem file.
        file: Its path, for messages.
        name: Of the spec.
        device: Where it will be judged.
        dtype: What it is to compute in.
        most_bytes: Largest inputs, weights and output of one call; a problem's sizes are halved until they fit.

    Raises:
        Refused: It cannot be judged.
    """
    return _Examination(execute(text, file), name, torch.device(device), dtype, most_bytes).facts()


class _Examination:
    def __init__(self, names: dict[str, Any], name: str, device: torch.device, dtype: str, most_bytes: int) -> None:
        self._names, self._name, self._device, self._dtype, self._most = names, name, device, dtype, most_bytes
        self._problem = Problem(names)
        self._notes: list[str] = []
        self._probe = self._find_probe()

    def facts(self) -> Facts:
        own = self._own_shape()
        shapes = self._small_shapes(own)
        training = self._mode(shapes[0])
        leaves = self._problem.leaves({}, self._probe, 0)
        inputs, scalars, arguments = self._arguments(leaves)
        weights = {word: tuple(one.shape) for word, one in self._problem.weights(self._probe, 0).items()}
        floating = [one.is_floating_point() for one in leaves if isinstance(one, Tensor)]
        facts = Facts(
            name=self._name, inputs=inputs, arguments=arguments, scalars=scalars, weights=weights, own_shape=own,
            shapes=shapes, edge_shapes=self._edges(shapes[-1], own), patterns=tuple(patterns(floating)),
            dtype=self._dtype, training=training, exact=self._is_exact(shapes[0]), cost=self._cost(shapes[0]),
            made_with=_literal(self._problem.init_inputs()), notes=tuple(self._notes),
        )  # fmt: skip
        return self._tried(facts)

    # Sizes

    def _find_probe(self) -> torch.device:
        """Where sizes are tried: the meta device, if the model works there."""
        try:
            self._problem.call(self._problem.draw({}, torch.float32, torch.device("meta"), 0))
        except Exception:
            try:
                self._problem.call(self._problem.draw({}, torch.float32, self._device, 0))
            except Exception as error:
                raise Refused(f"its own model does not run: {type(error).__name__}: {_first_line(error)}") from error
            return self._device
        return torch.device("meta")

    def _sizes(self, shape: Shape) -> list[tuple[int, ...]]:
        return [tuple(one.shape) for one in self._problem.leaves(shape, self._probe, 0) if isinstance(one, Tensor)]

    def _works(self, shape: Shape) -> bool:
        try:
            output = self._problem.call(self._problem.draw(shape, torch.float32, self._probe, 0))
        except Exception:
            return False
        return output.numel() > 0

    def _own_shape(self) -> dict[str, int]:
        """The sizes that can vary, as the problem has them, or as far below that as fits."""
        plain = self._sizes({})
        made = repr(self._problem.init_inputs())
        constants = self._problem.constants()
        own = {word: size for word, size in constants.items() if self._is_free([word], size, made, plain)}
        for size in set(constants.values()):  # some sizes have to go together
            words = [word for word, other in constants.items() if other == size]
            if len(words) > 1 and not own.keys() & set(words) and self._is_free(words, size, made, plain):
                own |= dict.fromkeys(words, size)
        if not own:
            rows = next((size[0] for size in plain if size), 1)
            can = BATCH not in self._problem.constants() and rows > 1 and self._works({BATCH: rows // 2})
            own = {BATCH: rows} if can else {WHOLE: 1}
        return self._fitting(own)

    def _is_free(self, words: Sequence[str], size: int, made: str, plain: Sequence[tuple[int, ...]]) -> bool:
        """Whether the inputs, and not the model's making, change with some constants, and the model takes them."""
        other = dict.fromkeys(words, size // 2 if size > 1 else 2)
        with self._problem.sized(other):
            same_model = repr(self._problem.init_inputs()) == made
        return same_model and self._changes(other, plain) and self._works(other)

    def _changes(self, shape: Shape, plain: Sequence[tuple[int, ...]]) -> bool:
        try:
            return self._sizes(shape) != plain
        except Exception:
            return False

    def _fitting(self, own: dict[str, int]) -> dict[str, int]:
        wanted = dict(own)
        for word in own:
            while self._bytes(own) > self._most and own[word] > 1 and self._works({**own, word: own[word] // 2}):
                own[word] //= 2
        while self._bytes(own) > self._most and max(own.values()) > 1 and self._works(_halved(own)):
            own = _halved(own)
        if self._bytes(own) > self._most:
            raise Refused(
                f"one call takes {self._bytes(own) / 1e6:.0f} MB of inputs, weights and output, more than "
                f"{self._most / 1e6:.0f} MB, and its sizes do not vary; raise the limit with --most-mb"
            )
        if own != wanted:
            changed = ", ".join(f"{word}={own[word]} for {size}" for word, size in wanted.items() if own[word] != size)
            self._notes.append(
                f"smaller than the benchmark's, so that a call fits {self._most / 1e6:.0f} MB: {changed}"
            )
        return own

    def _bytes(self, shape: Shape) -> int:
        tensors = self._problem.draw(shape, torch.float32, self._probe, 0)
        return sum(one.numel() * one.element_size() for one in (*tensors, self._problem.call(tensors)))

    def _elements(self, shape: Shape) -> int:
        return sum(torch.Size(size).numel() for size in self._sizes(shape))

    def _small_shapes(self, own: dict[str, int]) -> tuple[Shape, ...]:
        """The smallest sizes that work, the largest that are small, and one between."""
        found: list[dict[str, int]] = []
        for cap in _CAPS:
            shape = {word: min(size, cap) for word, size in own.items()}
            if shape not in found and self._works(shape) and (not found or self._elements(shape) <= _SMALL_ELEMENTS):
                found.append(shape)
        for word, size in own.items():  # some sizes go with each other: then one at a time
            shape = {**own, word: min(size, _CAPS[1])}
            if not found and self._works(shape):
                found.append(shape)
        if not found or (own not in found and self._elements(own) <= _SMALL_ELEMENTS):
            found.append(own)
        return tuple(found) if len(found) < 4 else (found[0], found[len(found) // 2], found[-1])

    def _edges(self, base: Shape, own: Shape) -> tuple[Shape, ...]:
        """For each size in turn, and all together: 1, one more than the largest small one, and two more odd ones."""
        if WHOLE in own:
            return ()
        found: list[Shape] = []
        for pick in (lambda _size: 1, lambda size: size + 1, lambda _size: 33, lambda _size: 5):
            alone = [{**base, word: pick(base[word])} for word in base]
            for shape in (*alone, {word: pick(size) for word, size in base.items()}):
                is_new = shape not in found and self._works(shape)
                if is_new and (BATCH in own or self._elements(shape) <= 4 * _SMALL_ELEMENTS):
                    found.append(shape)
        return tuple(found[:_MOST_EDGES])

    # Behaviour

    def _drawn(self, shape: Shape, seed: int = 1) -> tuple[Tensor, ...]:
        return self._problem.draw(shape, torch.float32, self._device, seed)

    def _mode(self, shape: Shape) -> bool:
        """The mode in which the model draws no random numbers: training, as the benchmark has it, or evaluation."""
        for training in (True, False):
            self._problem = Problem(self._names, training=training)
            tensors = self._drawn(shape)
            before = [one.clone() for one in tensors]
            first, again = self._called(tensors, 1), self._called(tensors, 2)
            changed = [one for one, old in zip(tensors, before, strict=True) if not torch.equal(one, old)]
            if changed:
                raise Refused("a call changes the model's inputs or weights, which a kernel is not allowed to")
            if torch.allclose(first, again, rtol=1e-3, atol=1e-6, equal_nan=True):
                if not training:
                    self._notes.append("judged in evaluation mode: in training mode it draws random numbers")
                return training
        raise Refused("a call draws random numbers, also in evaluation mode, so there is no right answer")

    def _called(self, tensors: Sequence[Tensor], seed: int) -> Tensor:
        with torch.random.fork_rng([self._device.index or 0] if self._device.type == "cuda" else []):
            torch.manual_seed(seed)
            try:
                return self._problem.call(tensors)
            except Exception as error:
                raise Refused(f"its own model does not run: {type(error).__name__}: {_first_line(error)}") from error

    def _is_exact(self, shape: Shape) -> bool:
        model, arguments = self._problem.prepared(self._drawn(shape), {})
        with torch.no_grad():
            leaves = [one for one in pytree.tree_leaves(model(*arguments)) if isinstance(one, Tensor)]
        if len(leaves) > 1:
            self._notes.append(f"its {len(leaves)} results are compared as one row of numbers")
        exact = not any(one.is_floating_point() for one in leaves)
        if exact:
            self._notes.append("its result is integers: kernel_fn returns them as floating-point numbers, exactly")
        return exact

    def _cost(self, shape: Shape) -> tuple[float, int] | None:
        if self._probe.type == "meta":
            return None
        tensors = self._drawn(shape)
        found = counted(lambda: self._problem.call(tensors))
        return found.flops, found.terms

    def _arguments(self, leaves: Sequence[Any]) -> tuple[tuple[str, ...], dict[str, tuple[int, float]], str]:
        """Names of the tensors, the numbers, and how both make up the arguments of a call."""
        drawn = self._problem.nested(leaves)
        try:
            words = list(inspect.signature(self._names["Model"].forward).parameters)[1:]
        except (TypeError, ValueError):
            words = []
        words = words if len(words) >= len(drawn) else [f"x{place}" for place in range(len(drawn))]
        reserved = set(self._problem.weights(self._probe, 0))
        labels: list[str] = []
        for word, part in zip(words, drawn, strict=False):
            count = len(pytree.tree_leaves(part))
            flat = isinstance(part, Tensor) or not isinstance(part, (list, tuple, dict))
            labels += [word] if flat else [f"{word}_{place}" for place in range(count)]
        labels = [f"{word}_" if word in reserved else word for word in labels]
        tensors, scalars, texts = [], {}, []
        for place, (label, leaf) in enumerate(zip(labels, leaves, strict=True)):
            if isinstance(leaf, Tensor):
                tensors.append(label)
            elif type(leaf) in (int, float):
                scalars[label] = (place, leaf)
            elif leaf is not None and type(leaf) not in (bool, str):
                raise Refused(f"its argument {label!r} is a {type(leaf).__name__}; only tensors and numbers are known")
            texts.append(label if isinstance(leaf, Tensor) or label in scalars else repr(leaf))
        text = repr(self._problem.nested([_Word(one) for one in texts]))
        return tuple(tensors), scalars, text[1:-1]

    # The spec

    def _tried(self, facts: Facts) -> Facts:
        """The facts with those patterns on which PyTorch is right; the spec is tested as a user's own is."""
        spec = facts.spec(self._names)
        problem = self._disagreement(spec, "normal")
        if problem:
            raise Refused(
                f"PyTorch's own {facts.dtype} result is not within the derived bound of the exact one: {problem}"
            )
        kept = () if facts.exact else tuple(one for one in facts.patterns if not self._disagreement(spec, one))
        facts = dataclasses.replace(facts, patterns=kept)
        try:
            check_spec(facts.spec(self._names), str(self._device))
        except InvalidSpec as error:
            raise Refused(str(error)) from error
        return facts

    def _disagreement(self, spec: ProblemSpec, fill: str) -> str:
        """Why inputs of a pattern cannot be used: PyTorch is wrong on them, or the answer is not finite."""
        case = Case(shape=spec.shapes[-1], dtype=spec.dtypes[0], fill=fill)
        try:
            inputs = make_case_inputs(spec, case, 3, str(self._device))
            right = golden(spec, case, inputs)
            comparison = compare(right.baseline().to(dtype_named(spec.dtypes[0])), right)
        except Exception as error:
            return f"{type(error).__name__}: {_first_line(error)}"
        if not bool(torch.isfinite(right.value).all()):
            return "" if fill == "normal" else "the answer is not finite"
        return "" if comparison.agrees else f"{comparison.error_over_bound:.3g} times the bound"


class _Word(str):
    """A text whose representation is itself."""

    def __repr__(self) -> str:
        return str(self)


def _halved(shape: Shape) -> dict[str, int]:
    return {word: max(1, size // 2) for word, size in shape.items()}


def _literal(values: list[Any]) -> str:
    """The values as an expression, or "" if they have none."""
    text = repr(values)
    try:
        return text if ast.literal_eval(text) == values else ""
    except (ValueError, SyntaxError, TypeError):
        return ""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:300]
