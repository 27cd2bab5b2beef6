"""The forward calls as a graph of data flow: who made a value, who uses it, and what lies between.

Patterns ask for the *source* of a value: the call that made it, looked up through views, and if they
like through casts and copies, which change neither meaning nor shape.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence

from autokernel.profiling.calls import Call, TensorInfo

__all__ = ["Graph", "Match", "constant_of", "dropout_rate", "read_bytes"]

_CASTS = frozenset(("_to_copy", "clone", "copy", "contiguous"))
_LOOKUPS = frozenset(("embedding", "gather", "index", "index_select"))  # read only what they return


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """A group of calls that together compute one operation.

    Attributes:
        kind: Name of the operation.
        calls: Their indices.
        inputs: The operation's inputs by the names of its signature.
        output: What it computes.
        options: Keyword arguments of its ``kernel_fn``: ``eps``, ``causal``, ``sm_scale``, ``activation``.
        details: What else is known of it: a bias that is added, heads of keys and values, the style of a rotation.
        unlike: Why the shipped operation does not cover it; "" if it does.
    """

    kind: str
    calls: tuple[int, ...]
    inputs: dict[str, TensorInfo]
    output: TensorInfo
    options: dict[str, object] = dataclasses.field(default_factory=dict)
    details: dict[str, object] = dataclasses.field(default_factory=dict)
    unlike: str = ""


class Graph:
    """Producers and consumers of the values in a stream of calls."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self._maker: dict[int, Call] = {}
        self._users: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            taken = {tensor.value for tensor in call.inputs}
            for value in taken:
                self._users[value].append(call)
            for output in call.outputs:
                if output.value not in taken:  # an operator may hand its input back
                    self._maker[output.value] = call

    def maker(self, tensor: TensorInfo | None) -> Call | None:
        """The call that made the tensor, a view too; None for an input, a parameter, or no tensor."""
        return None if tensor is None else self._maker.get(tensor.value)

    def source(self, tensor: object, *, casts: bool = False) -> Call | None:
        """The call that computed the tensor, looked up through views (and casts and copies on request)."""
        return self.trace(tensor, casts=casts)[1]

    def trace(self, tensor: object, *, casts: bool = False) -> tuple[TensorInfo | None, Call | None, list[Call]]:
        """Follow a tensor upwards.

        Returns:
            The tensor before all views (and casts), the call that computed it or None, and the casts passed.
        """
        passed: list[Call] = []
        if not isinstance(tensor, TensorInfo):
            return None, None, passed
        while True:
            call = self._maker.get(tensor.value)
            if call is None:
                return tensor, None, passed
            through_cast = casts and call.short in _CASTS
            if not (call.is_view and call.inputs) and not through_cast:
                return tensor, call, passed
            if through_cast:
                passed.append(call)
            tensor = call.inputs[0]

    def root(self, tensor: object, *, casts: bool = True) -> int | None:
        """Number of the value before all views and casts: two tensors with one root show the same data."""
        found = self.trace(tensor, casts=casts)[0]
        return None if found is None else found.value

    def users(self, tensor: TensorInfo, *, casts: bool = False, dropout: bool = False) -> list[tuple[Call, list[Call]]]:
        """The calls that compute with the tensor, looked up through views, each with the calls passed on the way.

        Args:
            tensor: The value.
            casts: Pass casts and copies.
            dropout: Pass dropout.
        """
        found = []
        stack: list[tuple[TensorInfo, list[Call]]] = [(tensor, [])]
        while stack:
            value, passed = stack.pop()
            for call in self._users.get(value.value, ()):
                first = bool(call.inputs) and call.inputs[0].value == value.value
                dropped = self._dropout(call) if dropout else []
                passes = (casts and call.short in _CASTS) or bool(dropped)
                if (first or dropped) and call.outputs and (call.is_view or passes):
                    more = passed + (dropped or ([call] if passes else []))
                    stack += [(output, more) for output in call.outputs if output.value != value.value]
                else:
                    found.append((call, passed))
        return sorted(found, key=lambda item: item[0].index)

    def _dropout(self, call: Call) -> list[Call]:
        """The calls that make up a dropout, if this call ends one: a product with scaled random zeros, or one call."""
        if call.short in ("native_dropout", "dropout"):
            return [call]
        if call.short not in ("mul", "mul_") or len(call.inputs) != 2:
            return []
        for tensor in call.inputs:
            scaling = self.source(tensor)
            if scaling is not None and scaling.short == "div_":
                noise = self.source(scaling.inputs[0])
                if noise is not None and noise.short == "bernoulli_":
                    return [noise, scaling, call]
        return []

    def only_user(self, tensor: TensorInfo, *, casts: bool = False) -> Call | None:
        """The single call that computes with the tensor, or None if there are several or none."""
        users = {call.index: call for call, _ in self.users(tensor, casts=casts)}
        return next(iter(users.values())) if len(users) == 1 else None

    def outer_bytes(self, indices: Iterable[int]) -> float:
        """Least traffic of a group of calls: what it reads from outside once, and what others use of its results."""
        group = set(indices)
        made = {output.value for index in group for output in self.calls[index].outputs}
        read: dict[int, float] = {}
        for index in sorted(group):
            for tensor in self.calls[index].inputs:
                root, call, _ = self.trace(tensor)
                inside = tensor.value in made or (call is not None and call.index in group)
                if not inside and root is not None:
                    size = min(read_bytes(self.calls[index], tensor), float(root.stored_bytes))
                    read[root.value] = max(read.get(root.value, 0.0), size)
        written = sum(self._kept_bytes(output, group) for index in group for output in self.calls[index].outputs)
        return sum(read.values()) + written

    def _kept_bytes(self, output: TensorInfo, group: set[int]) -> float:
        users = self.users(output)
        kept = not users or any(call.index not in group for call, _ in users)
        return float(output.stored_bytes) if kept else 0.0

    def same_data(self, one: object, other: object) -> bool:
        """True if both tensors show the same elements of the same value in the same order, casts aside."""
        if not isinstance(one, TensorInfo) or not isinstance(other, TensorInfo):
            return False
        if one.value == other.value:
            return True
        alike = (one.shape, one.stride, one.offset) == (other.shape, other.stride, other.offset)
        return alike and self.root(one) == self.root(other)

    def with_ndim(self, tensor: TensorInfo, ndim: int) -> TensorInfo | None:
        """The tensor, or the nearest that it is a view, cast or copy of, with that many dimensions; None if none is."""
        while len(tensor.shape) != ndim:
            call = self._maker.get(tensor.value)
            if call is None or not call.inputs or not (call.is_view or call.short in _CASTS):
                return None
            tensor = call.inputs[0]
        return tensor


def read_bytes(call: Call, tensor: TensorInfo) -> float:
    """Bytes of a tensor that a call has to read: all that is stored, or for a look-up as much as it returns."""
    stored = float(min(tensor.stored_bytes, tensor.numel * tensor.itemsize))
    if call.short in _LOOKUPS and call.outputs and call.inputs[0].value == tensor.value:
        return min(stored, float(call.outputs[0].stored_bytes))
    return stored


def dropout_rate(calls: Iterable[Call]) -> float:
    """The largest rate of the dropouts among the calls, 0 if there is none."""
    rates = [0.0]
    for call in calls:
        probability = constant_of(call.arguments.get("p"))
        if probability is not None and call.short in ("native_dropout", "dropout"):
            rates.append(probability)
        elif probability is not None and call.short == "bernoulli_":
            rates.append(round(1.0 - probability, 12))
    return max(rates)


def constant_of(value: object) -> float | None:
    """The number that an operand is, or None for a tensor."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
