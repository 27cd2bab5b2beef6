"""A module of the model as an operation of its own: a spec file with its computation, taken from a real call.

The module runs once more within the model, and its arguments are kept.  Its operators on these are traced
twice: as the model runs them (the baseline), and with attention as plain products, in a form that also
computes in float64 (the reference).  Parameters become inputs.  Sizes are those of the call, and no others.

Before the file is handed over, it is loaded, and both functions are checked against the module.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from autokernel import ops
from autokernel.errors import AutokernelError, UsageError
from autokernel.hints import did_you_mean
from autokernel.ops.spec import DTYPES
from autokernel.profiling import specfile
from autokernel.profiling.subject import Subject

__all__ = ["capture"]


class _Reached(Exception):
    """The module was called; the rest of the model need not run."""


def capture(subject: Subject, path: str, file: str | Path) -> Path:
    """Write a `KernelSpec` file for one module of a model.

    Args:
        subject: The model and its inputs.
        path: The module's path, such as ``layers.0.mlp``; "" is the model itself.
        file: A ``.py`` file; one that is there is replaced.

    Returns:
        The file's path.

    Raises:
        UsageError: There is no such module, the model does not call it, it draws random numbers, returns
            no tensor, or computes in a way that cannot be written down.
    """
    file = Path(file)
    if file.suffix != ".py":
        raise UsageError(f"a spec file is Python, not {file.name!r}; end the name in .py")
    module = _module(subject, path)
    with subject.kept():
        args, kwargs = _arguments(subject, module, path)
        names, tensors, call = _functional(module, args, kwargs)
        expected = call(*tensors)
        baseline, reference = _trace(call, tensors, path, math=False), _trace(call, tensors, path, math=True)
        title = re.sub(r"\W+", "_", f"{type(module).__name__}").strip("_").lower()
        text = specfile.write(title, path or type(module).__name__, names, tensors, expected, baseline, reference)
    file.write_text(text, encoding="utf-8")
    try:
        _check(file, tensors, expected)
    except BaseException:
        file.unlink()
        raise
    return file


def _module(subject: Subject, path: str) -> nn.Module:
    if subject.module is None:
        raise UsageError(f"{subject.name} is a function; only modules can be captured")
    try:
        return subject.module.get_submodule(path)
    except AttributeError:
        paths = [name for name, _ in subject.module.named_modules() if name]
        shown = ", ".join(paths[:10]) + (", ..." if len(paths) > 10 else "")
        raise UsageError(f"the model has no module {path!r}{did_you_mean(path, paths)}; it has: {shown}") from None


def _arguments(subject: Subject, module: nn.Module, path: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the module's first call."""
    kept: list[Any] = []

    def keep(_: nn.Module, args: Any, kwargs: Any) -> None:
        kept.append(pytree.tree_map_only(Tensor, lambda one: one.detach().clone(), (args, kwargs)))
        raise _Reached

    handle = module.register_forward_pre_hook(keep, with_kwargs=True, prepend=True)
    try:
        subject.prepare()()
    except AutokernelError:
        if not kept:
            raise
    finally:
        handle.remove()
    if not kept:
        raise UsageError(f"the model does not call its module {path!r} on these inputs, so there is nothing to capture")
    args, kwargs = kept[0]
    return args, kwargs


def _functional(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[str], list[Tensor], Callable[..., Tensor]]:
    """The module as a function of tensors: names and values of its inputs, and the function."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = _names(module, args, kwargs, leaves, places) + [_identifier(name) for name in state]
    tensors = [leaves[place] for place in places] + [one.detach() for one in state.values()]

    def call(*values: Tensor) -> Tensor:
        filled = list(leaves)
        for place, value in zip(places, values, strict=False):
            filled[place] = value
        own_args, own_kwargs = pytree.tree_unflatten(filled, tree)
        own_state = dict(zip(state, values[len(places) :], strict=True))
        with torch.no_grad():
            output = torch.func.functional_call(module, own_state, own_args, own_kwargs)
        found = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if not found:
            raise UsageError(f"{type(module).__name__} returns no floating-point tensor, so it is no operation")
        return found[0]

    return _unique(names), tensors, call


def _names(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], places: list[int]
) -> list[str]:
    """Names of the arguments as the module's forward has them."""
    named: dict[int, str] = {}
    try:
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {}
    for name, value in given.items():
        for leaf in pytree.tree_leaves(value):
            named.setdefault(id(leaf), name)
    return [_identifier(named.get(id(leaves[place]), "x")) for place in places]


def _identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"{word}_" if keyword.iskeyword(word) or not word.isidentifier() else word


def _unique(names: list[str]) -> list[str]:
    used: dict[str, int] = {}
    result = []
    for name in names:
        used[name] = used.get(name, 0) + 1
        result.append(name if used[name] == 1 else f"{name}_{used[name]}")
    return result


def _trace(call: Callable[..., Tensor], tensors: list[Tensor], path: str, *, math: bool) -> GraphModule:
    backends = [SDPBackend.MATH] if math else [one for one in SDPBackend.__members__.values() if one.value >= 0]
    try:
        with sdpa_kernel(backends):
            traced = make_fx(call, tracing_mode="real")(*tensors)
    except AutokernelError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(f"the module {path!r} cannot be traced: {type(error).__name__}: {first}") from error
    random = sorted({node.name for node in traced.graph.nodes if _is_random(node.target)})
    if random:
        raise UsageError(
            f"the module {path!r} draws random numbers ({', '.join(random)}), so it has no reference; "
            "capture it in evaluation mode"
        )
    traced.graph.eliminate_dead_code()
    return traced


def _is_random(target: Any) -> bool:
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and "_scaled_dot_product" not in str(target)


def _check(file: Path, tensors: list[Tensor], expected: Tensor) -> None:
    """Load the file and compare both of its functions with the module, on the captured inputs and on its own."""
    spec = ops.load_file(file)
    wide = [one.double() if one.is_floating_point() else one for one in tensors]
    dtype = str(expected.dtype).removeprefix("torch.")
    assert spec.baseline is not None
    for what, result in (("reference", spec.reference(*wide)), ("baseline", spec.baseline(*tensors))):
        tolerance = 64 * torch.finfo(expected.dtype).eps
        scale = max(float(expected.double().abs().max()), 1e-6)
        worst = float((result.double() - expected.double()).abs().nan_to_num(float("inf")).max()) / scale
        if result.shape != expected.shape or worst > tolerance:
            raise UsageError(
                f"the {what} that was written for the module differs from it by {worst:.2g} of the largest value, "
                f"more than {tolerance:.2g}; the module does something that depends on its dtype"
            )
    generator = torch.Generator(device=expected.device).manual_seed(0)
    drawn = spec.make_inputs(spec.shapes[0], DTYPES.get(dtype, torch.float32), generator)
    if [tuple(one.shape) for one in drawn] != [tuple(one.shape) for one in tensors]:
        raise UsageError("the inputs that were written for the module have other shapes than the model's")
