"""A class ``ModelNew`` as a ``kernel_fn``: its weights are inputs of each call, as the judge hands them over.

KernelBench's candidates are modules that hold their weights; ours are functions that are given them.  The
module is made once, and before each call the given weights take the place of its own.

What `slots`, `place` and `joined` do, the reference does as well (`autokernel.ops.problem`), so that both see
the same weights and return the same kind of tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = ["Places", "Slots", "as_float32", "as_function", "joined", "place", "settle", "slots"]

Slots = dict[str, list[tuple[Any, Any]]]
Places = Sequence[tuple[Any, Any]]
# The only buffers that are weights in effect; masks and tables belong to the model's structure.
_STATISTICS = ("running_mean", "running_var")


def as_float32() -> None:
    """Have cuDNN compute float32 convolutions in float32, as products are; by default it rounds their inputs."""
    torch.backends.cudnn.allow_tf32 = False


def settle(model: nn.Module) -> None:
    """Make a module ready to be given its weights anew at each call.

    Normalisations in training mode forget the statistics that they keep, which no output depends on.  Recurrent
    modules hold a list of their weights besides, and no longer look whether it is the latest: `place` sees to that.
    """
    for module in model.modules():
        if module.training and hasattr(module, "track_running_stats") and hasattr(module, "running_mean"):
            module.track_running_stats = False  # type: ignore[assignment]
            for name in (*_STATISTICS, "num_batches_tracked"):
                module._buffers[name] = None
        if isinstance(module, nn.RNNBase):
            module._flat_weight_refs = [None] * len(module._flat_weights_names)


def slots(model: nn.Module) -> Slots:
    """Where a model keeps its weights: for each, by its first name, every table and key under which it stands.

    Weights are the floating-point parameters, then running means and variances; one that several modules
    share is one weight.
    """
    found: dict[int, tuple[str, list[tuple[Any, Any]]]] = {}
    for kind in ("_parameters", "_buffers"):
        for path, owner in model.named_modules():
            table = getattr(owner, kind)
            for key, value in table.items():
                if value is None or not value.is_floating_point() or value.numel() == 0:
                    continue
                if kind == "_buffers" and key not in _STATISTICS:
                    continue
                name = f"{path}.{key}" if path else key
                places = found.setdefault(id(value), (name, []))[1]
                places.append((table, key))
                if isinstance(owner, nn.RNNBase):
                    places.append((owner._flat_weights, owner._flat_weights_names.index(key)))
    return dict(found.values())


def place(where: Sequence[Places], weights: Sequence[Tensor]) -> None:
    """Put weights, in the order of `slots`, where a model keeps them."""
    for places, weight in zip(where, weights, strict=True):
        for table, key in places:
            table[key] = weight


def joined(output: Any, like: torch.dtype) -> Tensor:
    """A model's output as one tensor of floating-point numbers.

    One tensor stays as it is; several, in lists, tuples or mappings, become one row of all their elements.
    Integers and booleans become numbers of the dtype ``like``.

    Raises:
        TypeError: There is no tensor, or one of complex numbers.
    """
    found = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    if not found or any(one.is_complex() for one in found):
        raise TypeError("the model returns complex numbers" if found else "the model returns no tensor")
    values = [one if one.is_floating_point() else one.to(like) for one in found]
    if len(values) == 1:
        return values[0]
    return torch.cat([one.reshape(-1) for one in values])


def as_function(
    model_class: Callable[..., nn.Module],
    arguments: Sequence[Any],
    weights: Mapping[str, Sequence[int]],
    *,
    training: bool,
    seed: int = 42,
) -> Callable[[Sequence[Any], Sequence[Tensor]], Tensor]:
    """Make a module, and return what calls it on inputs with weights.

    Args:
        model_class: ``ModelNew``.
        arguments: What it is made with: the problem's ``get_init_inputs()``.
        weights: Names and sizes of the reference's weights, in their order.
        training: The mode that the reference computes in.
        seed: The module is made with this seed of PyTorch's generator, whose state is put back.

    Raises:
        ValueError: Its parameters are not those of the reference, neither by name nor by order and size.
    """
    as_float32()
    device = torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
    with torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = model_class(*arguments).to(device).train(training)
    settle(model)
    where = _matched(slots(model), weights)

    def call(inputs: Sequence[Any], given: Sequence[Tensor]) -> Tensor:
        place(where, given)
        floating = next(one.dtype for one in (*inputs, *given) if isinstance(one, Tensor) and one.is_floating_point())
        return joined(model(*inputs), floating)

    return call


def _matched(own: Slots, weights: Mapping[str, Sequence[int]]) -> list[Places]:
    """The places for the reference's weights, by name, or else by order."""
    sizes = {name: tuple(places[0][0][places[0][1]].shape) for name, places in own.items()}
    wanted = {name: tuple(size) for name, size in weights.items()}
    if all(sizes.get(name) == size for name, size in wanted.items()):
        return [own[name] for name in wanted]
    if list(sizes.values()) == list(wanted.values()):
        return list(own.values())
    raise ValueError(
        f"the parameters of ModelNew, {_listed(sizes)}, are not those of Model, {_listed(wanted)}: they must have "
        "the same names and sizes, or the same sizes in the same order; or write kernel_fn, which is given them"
    )


def _listed(sizes: Mapping[str, tuple[int, ...]]) -> str:
    words = [f"{name} {list(size)}" for name, size in sizes.items()]
    return (", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")) or "none"
