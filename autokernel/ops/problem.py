"""A problem file in KernelBench's format as a `KernelSpec`.

Such a file defines a module ``Model``, ``get_inputs()`` with the arguments of its call, and
``get_init_inputs()`` with those of its making.  The inputs of ``kernel_fn`` are the tensors of
``get_inputs()``, then the model's weights (`autokernel.ops.modelnew.slots`); numbers among the arguments
are options.  Inputs and weights are drawn as the file draws them, with a seed of the judge's.

Sizes are the integers that the file keeps as module-level constants (``batch_size``), or elements of its
tuples (``input_shape_0``), as far as the model's own making does not depend on them; or ``batch``, by
which inputs are cut.  Which, `autokernel.kernelbench` finds out once and writes down.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from autokernel.ops import fills
from autokernel.ops.modelnew import Places, as_float32, joined, place, settle, slots
from autokernel.ops.spec import Fill, KernelSpec, Magnitude, Shape

__all__ = ["BATCH", "WHOLE", "Cost", "Problem", "ProblemSpec", "counted", "patterns", "problem_spec"]

BATCH = "batch"
# A problem's constants and PyTorch's own random generators belong to the process, not to a thread.
_LOCK = threading.RLock()
WHOLE = "whole"  # the one size, always 1, of a problem that has none to vary
_TENSOR = object()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemSpec(KernelSpec):
    """The spec of a problem.

    Attributes:
        benchmark_inputs: ``(seed, device) -> tensors``: inputs and weights exactly as the benchmark draws them, at
            the problem's own sizes; the weights follow from the benchmark's fixed seed.
        weights: Names and sizes of the weights, which come after the inputs.
    """

    benchmark_inputs: Callable[[int, str], tuple[Tensor, ...]]
    weights: Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call computes.

    Attributes:
        flops: Of products and convolutions.
        terms: How many terms the operators on the way add up for one element, one operator after another; one for an
            operator that adds none, because it rounds, too.
    """

    flops: float
    terms: int


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw on ``device`` with ``seed``; the states of the generators are put back."""
    state = random.getstate()
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.device(device):
        torch.manual_seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


class _Widened(TorchFunctionMode):
    """Computes in float64 what a model computes in float32, tensors that it makes itself included."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if _in_place(getattr(func, "__name__", "")) and _wide(args[0]) is not args[0]:
            raise TypeError("the model changes a float32 tensor of its own in place, so it cannot compute in float64")
        if func is Tensor.float:
            func = Tensor.double
        args, kwargs = pytree.tree_map(_wide, (tuple(args), dict(kwargs or {})))
        return pytree.tree_map(_wide, func(*args, **kwargs))


def _in_place(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _wide(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value == torch.float32 else value
    if type(value) is Tensor and value.dtype == torch.float32:
        with torch._C.DisableTorchFunction():
            return value.double()
    return value


class _Here(threading.local):
    """What each thread has for itself: a model for each device."""

    def __init__(self) -> None:
        self.models: dict[torch.device, tuple[int, bool, nn.Module, list[Places]]] = {}


class Problem:
    """The model and the inputs of a problem file.

    Args:
        names: The file's names once it was executed; its constants are changed while inputs of other sizes are drawn.
        training: Whether the model computes in training mode, in which a module is when it was made.
    """

    def __init__(self, names: dict[str, Any], *, training: bool = True) -> None:
        self._names = names
        self._training = training
        self._here = _Here()
        self._costs: dict[tuple[tuple[str, int], ...], Cost] = {}
        self._fixed: tuple[list[Any], Any] | None = None
        self._sizes: dict[str, Tensor] | None = None

    def constants(self) -> dict[str, int]:
        """The sizes that the file names at module level: integers above 0, and those in its tuples and lists."""
        found: dict[str, int] = {}
        for name, value in self._names.items():
            if name.startswith("_"):
                continue
            if type(value) is int and value > 0:
                found[name] = value
            elif isinstance(value, (tuple, list)) and value and all(type(one) is int and one > 0 for one in value):
                found |= {f"{name}_{place}": one for place, one in enumerate(value)}
        return found

    def init_inputs(self) -> list[Any]:
        """The arguments that the model is made with."""
        return list(self._names.get("get_init_inputs", list)())

    def build(self, device: torch.device, seed: int) -> nn.Module:
        """Make the model as the benchmark does: seeded before its arguments, and again before itself."""
        with _LOCK, _seeded(seed, device):
            arguments = self.init_inputs()
            torch.manual_seed(seed)
            model: nn.Module = self._names["Model"](*arguments)
            model = model.to(device).train(self._training)
        settle(model)
        return model

    def nested(self, leaves: Sequence[Any]) -> list[Any]:
        """What `leaves` laid flat, nested again."""
        assert self._fixed is not None
        return list(pytree.tree_unflatten(list(leaves), self._fixed[1]))

    def weights(self, device: torch.device, seed: int) -> dict[str, Tensor]:
        """Freshly drawn weights by name; on the meta device they are made once."""
        if device.type == "meta" and self._sizes is not None:
            return self._sizes
        where = slots(self.build(device, seed))
        found = {name: places[0][0][places[0][1]].detach() for name, places in where.items()}
        if device.type == "meta":
            self._sizes = found
        return found

    def leaves(self, shape: Shape, device: torch.device, seed: int) -> list[Any]:
        """Freshly drawn arguments of a call, nested ones laid flat: tensors on ``device``, and what else there is.

        Raises:
            ValueError: There is no such size, or fewer rows than are asked for.
        """
        with _LOCK, self.sized(shape), _seeded(seed, device):
            drawn = self._names["get_inputs"]()
            drawn = [drawn] if isinstance(drawn, Tensor) else list(drawn)
        leaves, tree = pytree.tree_flatten(drawn)
        if self._fixed is None:
            self._fixed = ([_TENSOR if isinstance(one, Tensor) else one for one in leaves], tree)
        leaves = [one.detach().to(device) if isinstance(one, Tensor) else one for one in leaves]
        return _cut(leaves, shape[BATCH]) if BATCH in shape and BATCH not in self.constants() else leaves

    def draw(self, shape: Shape, dtype: torch.dtype, device: torch.device, seed: int) -> tuple[Tensor, ...]:
        """Inputs and weights for a call, drawn from ``seed``; weights that all begin alike are moved apart.

        A bias begins as zeros and a scale as ones, and a kernel that leaves them out would be right.
        """
        inputs = [one for one in self.leaves(shape, device, seed) if isinstance(one, Tensor)]
        weights = list(self.weights(device, seed + 1).values())
        if device.type != "meta":
            generator = torch.Generator(device=device).manual_seed(seed + 2)
            weights = [_apart(one, generator) for one in weights]
        return tuple(one.to(dtype) if one.is_floating_point() else one for one in (*inputs, *weights))

    def benchmark_inputs(self, shape: Shape, dtype: torch.dtype, device: torch.device, seed: int) -> tuple[Tensor, ...]:
        """Inputs from ``seed``, and weights from the benchmark's seed 42, as they are drawn."""
        inputs = [one for one in self.leaves(shape, device, seed) if isinstance(one, Tensor)]
        tensors = (*inputs, *self.weights(device, 42).values())
        return tuple(one.to(dtype) if one.is_floating_point() else one for one in tensors)

    def prepared(self, tensors: Sequence[Tensor], scalars: Mapping[str, Any]) -> tuple[nn.Module, Sequence[Any]]:
        """The model of this thread with its weights in place, and the arguments to call it with.

        Args:
            tensors: Inputs and weights, as `draw` returns them.
            scalars: Numbers among the arguments that are to be others, by their names ``argument_<place>``.
        """
        # This is timed as part of PyTorch's baseline, so it does as little as it can.
        count, flat, model, where = self._mine(tensors[0].device)
        place(where, tensors[count:])
        assert self._fixed is not None
        if flat and count == len(self._fixed[0]):
            return model, tensors[:count]
        given = iter(tensors[:count])
        filled = [
            next(given) if one is _TENSOR else scalars.get(f"argument_{number}", one) if scalars else one
            for number, one in enumerate(self._fixed[0])
        ]
        return model, filled if flat else self.nested(filled)

    def _mine(self, device: torch.device) -> tuple[int, bool, nn.Module, list[Places]]:
        """How many inputs there are, whether no argument is nested, this thread's model, its weights' places."""
        mine = self._here.models.get(device)
        if mine is None:
            if self._fixed is None:
                self.leaves({}, torch.device("cpu"), 0)
            assert self._fixed is not None
            model = self.build(device, 0)
            leaves = self._fixed[0]
            mine = (
                sum(one is _TENSOR for one in leaves),
                self.nested(leaves) == leaves,
                model,
                list(slots(model).values()),
            )
            self._here.models[device] = mine
        return mine

    def call(self, tensors: Sequence[Tensor], scalars: Mapping[str, Any] | None = None) -> Tensor:
        """What the model returns, as one tensor; in float64 throughout if the tensors are."""
        floating = next((one.dtype for one in tensors if one.is_floating_point()), None)
        if floating is None:
            raise TypeError("neither an input nor a weight is a floating-point tensor")
        model, arguments = self.prepared(tensors, scalars or {})
        wide = _Widened() if floating == torch.float64 else contextlib.nullcontext()
        at = torch.device("meta") if tensors[0].is_meta else contextlib.nullcontext()
        with torch.no_grad(), wide, at:
            output = joined(model(*arguments), floating)
        return output.double() if floating == torch.float64 else output

    def cost(self, shape: Shape) -> Cost:
        """What a call of these sizes computes, found without computing it."""
        key = tuple(sorted(shape.items()))
        if key not in self._costs:
            tensors = self.draw(shape, torch.float32, torch.device("meta"), 0)
            self._costs[key] = counted(lambda: self.call(tensors))
        return self._costs[key]

    @contextlib.contextmanager
    def sized(self, shape: Shape) -> Iterator[None]:
        """Give the file's constants other sizes for a while."""
        before: dict[str, Any] = {}
        try:
            for name, size in shape.items():
                if name in self._names and type(self._names[name]) is int:
                    before.setdefault(name, self._names[name])
                    self._names[name] = size
                    continue
                whole, _, place_text = name.rpartition("_")
                if whole in self._names and place_text.isdecimal():
                    old = self._names[whole]
                    before.setdefault(whole, old)
                    changed = list(old)
                    changed[int(place_text)] = size
                    self._names[whole] = type(old)(changed)
                elif name not in (BATCH, WHOLE):
                    raise ValueError(f"the problem has no size {name!r}")
            yield
        finally:
            self._names.update(before)


def _cut(leaves: Sequence[Any], size: int) -> list[Any]:
    """Only the first rows of the tensors that have as many rows as the first one."""
    rows = next(one.shape[0] for one in leaves if isinstance(one, Tensor) and one.dim())
    if size > rows:
        raise ValueError(f"the inputs have {rows} rows, fewer than {size}")
    return [
        one[:size].clone() if isinstance(one, Tensor) and one.dim() and one.shape[0] == rows else one for one in leaves
    ]


def _apart(value: Tensor, generator: torch.Generator) -> Tensor:
    if not bool((value == value.reshape(-1)[0]).all()):
        return value
    noise = torch.rand(value.shape, generator=generator, device=value.device, dtype=value.dtype)
    return torch.where(value == 0, noise * 0.2 - 0.1, value * (0.75 + 0.5 * noise))


class _Count(TorchDispatchMode):
    """Counts the FLOP and the added terms of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0
        self.terms = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        packet = func._overloadpacket
        if packet in flop_registry:
            self.flops += float(flop_registry[packet](*args, **kwargs, out_val=result))
        if not any(one.alias_info is not None for one in func._schema.returns):
            self.terms += max(1, _terms(packet.__name__, args, result))
        return result


def counted(call: Callable[[], Any]) -> Cost:
    """The cost of what ``call`` computes."""
    with _Count() as count:
        call()
    return Cost(count.flops, max(1, count.terms))


def _terms(name: str, args: Sequence[Any], result: Any) -> int:
    """How many terms an operator adds up for one element of its result; 0 if it adds none."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if name in ("mm", "bmm"):
        return int(tensors[0].shape[-1])
    if name in ("addmm", "baddbmm", "addmv"):
        return int(tensors[1].shape[-1])
    if "convolution" in name and len(tensors) > 1:
        weight = tensors[1]
        transposed = len(args) > 6 and args[6] is True
        return weight.numel() // max(1, weight.shape[1 if transposed else 0])
    if "scaled_dot_product" in name:
        return int(tensors[0].shape[-1] + tensors[1].shape[-2])
    if name.startswith("cum") or "cumsum" in name or "softmax" in name or name == "logcumsumexp":
        return int(max(tensors[0].shape, default=1))
    results = [one for one in pytree.tree_leaves(result) if isinstance(one, Tensor) and one.numel()]
    if not tensors or not results:
        return 0
    if "norm" in name and len(results) > 1:  # the last result holds the statistics
        return tensors[0].numel() // results[-1].numel()
    ratio = max(one.numel() for one in tensors) // max(one.numel() for one in results)
    return ratio if ratio > 1 and name not in ("slice", "select", "index", "narrow", "gather", "embedding") else 0


def problem_spec(
    names: dict[str, Any],
    *,
    name: str,
    inputs: Sequence[str],
    weights: Mapping[str, Sequence[int]],
    scalars: Mapping[str, tuple[int, float]] | None = None,
    shapes: Sequence[Shape],
    edge_shapes: Sequence[Shape],
    own_shape: Shape,
    chosen: Sequence[str],
    dtype: str = "float32",
    training: bool = True,
    exact: bool = False,
    cost: tuple[float, int] | None = None,
    description: str = "",
    signature: str = "",
) -> ProblemSpec:
    """Return the spec of a problem file that was executed.

    Args:
        names: Its names.
        name: Of the spec.
        inputs: The tensors of ``get_inputs()`` by name.
        weights: The model's weights by name, with their sizes.
        scalars: For each number among the arguments, which ``kernel_fn`` takes as an option, its place among all
            arguments, and its value.
        shapes: Small sizes for the verification.
        edge_shapes: Sizes that blocks do not divide.
        own_shape: The sizes of the problem, which are timed.
        chosen: Those of `patterns` that make sense here.
        dtype: What it computes in.
        training: The model's mode.
        exact: The result is integers, which a right kernel gets exactly.
        cost: FLOP and terms of a call, where they cannot be found for each shape.
        description, signature: As in `KernelSpec`.
    """
    as_float32()
    problem = Problem(names, training=training)
    places = {word: f"argument_{number}" for word, (number, _value) in (scalars or {}).items()}

    def reference(*tensors: Tensor, **options: Any) -> Tensor:
        return problem.call(tensors, {places[word]: value for word, value in options.items()})

    def baseline(*tensors: Tensor, **options: Any) -> Tensor:
        chosen = {places[word]: value for word, value in options.items()} if options else options
        model, arguments = problem.prepared(tensors, chosen)
        output = model(*arguments)
        if type(output) is Tensor and output.is_floating_point():
            return output
        return joined(output, tensors[0].dtype if tensors[0].is_floating_point() else torch.float32)

    def make_inputs(shape: Shape, kind: torch.dtype, generator: torch.Generator) -> tuple[Tensor, ...]:
        seed = int(torch.randint(1 << 40, (), generator=generator, device=generator.device))
        return problem.draw(shape, kind, generator.device, seed)

    def benchmark_inputs(seed: int, device: str) -> tuple[Tensor, ...]:
        return problem.benchmark_inputs(own_shape, torch.float32, torch.device(device), seed)

    def find_cost(shape: Shape) -> Cost:
        return problem.cost(shape) if cost is None else Cost(*cost)

    return ProblemSpec(
        name=name,
        reference=reference,
        baseline=baseline,
        make_inputs=make_inputs,
        shapes=shapes,
        edge_shapes=edge_shapes,
        timing_shapes=(own_shape,),
        dtypes=(dtype,),
        options=({word: value for word, (_number, value) in (scalars or {}).items()},),
        fills={word: patterns([True] * len(inputs))[word] for word in chosen},
        strided_inputs=(),
        flops=lambda shape: find_cost(shape).flops,
        reduction_length=lambda shape: find_cost(shape).terms,
        magnitude=_no_error if exact else None,
        description=description,
        signature=signature,
        benchmark_inputs=benchmark_inputs,
        weights=weights,
    )


def patterns(floating: Sequence[bool]) -> dict[str, Fill]:
    """Value patterns for inputs, of which some are floating-point: those that are derived for any spec, and negated.

    The benchmark draws many inputs from 0 to 1, where a kernel that returns them is a right rectifier.
    """
    found = {f"negated_{place}": fills.scaled(place, -1.0) for place, one in enumerate(floating) if one}
    return {**found, **fills.derived(tuple(torch.empty(1) if one else torch.empty(1).long() for one in floating))}


def _no_error(*tensors: Tensor, **_options: Any) -> Magnitude:
    return Magnitude(accumulated=tensors[0].new_zeros((), dtype=torch.float64))
