"""Inputs and outputs of models: nested tuples, lists, dictionaries and dataclasses of tensors.

Input sets are given as a tensor (one positional argument), a tuple (positional arguments), a
dictionary (keyword arguments) or a `Call`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from autokernel.errors import UsageError

__all__ = ["Call", "as_call", "clone", "leaves", "mapped"]


_DEEPEST = 12


class Call(NamedTuple):
    """The arguments of one call of a model."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


def as_call(inputs: Any) -> Call:
    """Read one input set.

    Raises:
        UsageError: It is none of the accepted forms.
    """
    if isinstance(inputs, Call):
        return inputs
    if isinstance(inputs, Tensor):
        return Call((inputs,))
    if isinstance(inputs, tuple):
        return Call(inputs)
    if isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs):
        return Call((), dict(inputs))
    raise UsageError(
        f"inputs of type {type(inputs).__name__} cannot be passed to a model; give a tensor, a tuple of "
        "positional arguments, or a dictionary of keyword arguments"
    )


def leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every tensor and number in a nested value, with its path such as ``.logits`` or ``[0]['k']``.

    Not deeper than twelve levels, because plain objects may hold each other.
    """
    if depth > _DEEPEST:
        return
    if isinstance(value, (Tensor, bool, int, float)):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None)
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{names[index]}" if names else f"{path}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, (str, bytes, type)):
        yield from _attributes(value, path, depth)


def _attributes(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """The leaves in a dataclass or another plain object; caches of language models are such."""
    if dataclasses.is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        named = dict(getattr(value, "__dict__", {}))
    for name, item in named.items():
        if isinstance(item, (Tensor, Mapping, list, tuple)) or dataclasses.is_dataclass(item):
            yield from leaves(item, f"{path}.{name}", depth + 1)


def clone(value: Any) -> Any:
    """A copy in which no tensor shares memory with the original; other objects are deep copies."""
    return mapped(value, lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a nested value with ``change`` applied to each tensor."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Call):
        return Call(mapped(value.args, change), mapped(dict(value.kwargs), change))
    if isinstance(value, Mapping):
        items = {key: mapped(item, change) for key, item in value.items()}
        return items if type(value) is dict else _rebuilt(value, items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(item, change) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(item, change) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        copied = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(copied, field.name, mapped(getattr(value, field.name), change))
        return copied
    return copy.deepcopy(value)


def _rebuilt(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    try:
        return type(value)(items)  # type: ignore[call-arg]
    except Exception:  # a mapping that is made otherwise
        return items
