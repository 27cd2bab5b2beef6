"""Is the model with kernels as right as the plain one?

Both are compared with a copy of the plain model that computes in float64 (float32, if that is all
that fits or runs).  The error of the model with kernels may be twice the plain model's own, and a
few roundings more; so a model in bfloat16 is not asked for more than it gives by itself, and one in
float32 not for less.

An output's error is the root of the sum of its squared differences over that of the reference's
squared values; its largest difference is judged too.  Numbers that are not floating (tokens, masks)
may differ from the reference where the plain model's own do, and in one of 200 more.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from autokernel.integration.trees import Call, clone, leaves, mapped

__all__ = ["OutputError", "Reference", "judge", "roundoff_of", "run_once"]

_RATIO, _LARGEST_RATIO = 2.0, 4.0
_ROUNDINGS, _LARGEST_ROUNDINGS = 8.0, 32.0
_DISCRETE = 0.005
_FEW = 1024  # the error of so few numbers is a matter of luck: the largest of all outputs stands beside it
_UNLIKE = 0.25  # a plain model so far from its own reference draws random numbers, or is no function
_BLIND = 64.0  # roundings that are allowed against the plain model where no reference can be had


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputError:
    """One output tensor.

    Attributes:
        path: Where it stands in the model's output, such as ``.logits``; ``inputs[0]`` is an input
            that the model changed.
        original: Relative error of the plain model; for tokens and the like the share that differs.
        integrated: The same of the model with kernels.
        bound: What ``integrated`` may be.
        original_largest, integrated_largest, largest_bound: The same for the largest difference.
        ok: Whether it is within both bounds.
        reason: What is wrong, or "".
    """

    path: str
    original: float
    integrated: float
    bound: float
    original_largest: float = 0.0
    integrated_largest: float = 0.0
    largest_bound: float = 0.0
    ok: bool = True
    reason: str = ""


class Reference:
    """A copy of the plain model in higher precision.

    Args:
        model: The plain model; not changed.
        limit_bytes: What the copy's parameters and buffers may take.

    Attributes:
        precision: ``float64``, ``float32``, or "" if there is none.
        note: Why it is not float64, or "".
    """

    def __init__(self, model: nn.Module, limit_bytes: float | None = None) -> None:
        tensors = [value for value in (*model.parameters(), *model.buffers()) if value.is_floating_point()]
        self._device = tensors[0].device if tensors else torch.device("cpu")
        count = sum(value.numel() for value in tensors)
        limit = _free_bytes(self._device) / 2 if limit_bytes is None else limit_bytes
        narrow = any(value.element_size() < 4 for value in tensors)
        self._plain = model
        self._choices = [("float64", torch.float64)] if 8 * count <= limit else []
        self._choices += [("float32", torch.float32)] if narrow and 4 * count <= limit else []
        self.note = "" if 8 * count <= limit else f"{8e-9 * count:.1f} GB for a float64 copy are not free"
        self.precision = ""
        self._copy: nn.Module | None = None
        self._next()

    def _next(self) -> None:
        self._copy, self.precision = None, ""
        while self._choices and self._copy is None:
            name, dtype = self._choices.pop(0)
            try:
                self._copy, self.precision = copy.deepcopy(self._plain).to(dtype), name
            except Exception as error:
                self.note = f"the model cannot be copied to {name}: {type(error).__name__}: {error}"

    def run(self, call: Call, seed: int) -> dict[str, Any] | None:
        """The outputs in higher precision; None if no copy runs on this call."""
        while self._copy is not None:
            dtype = torch.float64 if self.precision == "float64" else torch.float32
            wide = mapped(call, functools.partial(_widened, dtype=dtype))
            try:
                return run_once(self._copy, wide, seed)
            except Exception as error:
                self.note = f"the model does not run in {self.precision}: {type(error).__name__}: {error}"
                self._next()
        return None


def _widened(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def run_once(model: nn.Module, call: Call, seed: int) -> dict[str, Any]:
    """Run a model on a copy of the inputs; return its outputs and the inputs afterwards, by path."""
    copied = clone(call)
    devices = list(range(torch.cuda.device_count()))
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        output = model(*copied.args, **copied.kwargs)
    found = {path or "output": _kept(value) for path, value in leaves(output)}
    before = dict(leaves((call.args, dict(call.kwargs))))
    for path, value in leaves((copied.args, dict(copied.kwargs))):
        old = before.get(path)
        if isinstance(value, Tensor) and isinstance(old, Tensor) and not _same(old, value):
            found[f"inputs{path}"] = _kept(value)
    return found


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same(old: Tensor, new: Tensor) -> bool:
    return old.shape == new.shape and torch.equal(torch.nan_to_num(old), torch.nan_to_num(new))


def judge(
    plain: Mapping[str, Any], integrated: Mapping[str, Any], reference: Mapping[str, Any] | None, roundoff: float
) -> tuple[list[OutputError], str]:
    """Compare all outputs of one call.

    Args:
        plain: Outputs of the plain model, from `run_once`.
        integrated: Those of the model with kernels.
        reference: Those in higher precision, or None.
        roundoff: Unit roundoff of the model's coarsest dtype.

    Returns:
        One entry for each output, and a note, or "".
    """
    if set(plain) != set(integrated):
        odd = ", ".join(sorted(set(plain) ^ set(integrated)))
        return [OutputError(path=odd, original=0, integrated=0, bound=0, ok=False, reason="not in both models")], ""
    note = ""
    scale = max((_errors(value, value).size for value in plain.values() if _is_floating(value)), default=0.0)
    own: dict[str, float] = {}
    if reference is not None:
        errors = {path: _errors(plain[path], reference.get(path)) for path in plain if _is_floating(plain[path])}
        own = {path: 0.0 if one.negligible(scale) else one.relative for path, one in errors.items()}
        unlike = [path for path, error in own.items() if not error <= _UNLIKE]
        if unlike or set(reference) != set(plain):
            note = (
                f"the plain model is unlike its own {unlike or 'structure'} in higher precision; compared with itself"
            )
            reference = None
    worst = 0.0 if reference is None else max(own.values(), default=0.0)
    return [_judge_one(path, plain[path], integrated[path], reference, roundoff, worst, scale) for path in plain], note


def _is_floating(value: Any) -> bool:
    return isinstance(value, float) or isinstance(value, Tensor) and value.is_floating_point()


def _judge_one(
    path: str,
    plain: Any,
    integrated: Any,
    reference: Mapping[str, Any] | None,
    roundoff: float,
    worst: float,
    scale: float,
) -> OutputError:
    problem = _misfit(plain, integrated)
    if problem:
        return OutputError(path=path, original=0.0, integrated=1.0, bound=0.0, ok=False, reason=problem)
    target = plain if reference is None else reference[path]
    own, got = _errors(plain, target), _errors(integrated, target)
    if not _is_floating(plain):
        bound = _RATIO * own.relative + _DISCRETE
        reason = "" if got.relative <= bound else f"{got.relative:.2%} of the numbers differ"
        return OutputError(
            path=path, original=own.relative, integrated=got.relative, bound=bound, ok=not reason, reason=reason
        )
    unit = max(roundoff, torch.finfo(plain.dtype).eps / 2 if isinstance(plain, Tensor) else 0.0)
    shared = worst if got.numbers < _FEW else 0.0
    roundings = _BLIND if reference is None else _ROUNDINGS
    bound = _RATIO * max(own.relative, shared) + roundings * unit
    largest_bound = _LARGEST_RATIO * own.largest + ((roundings + _LARGEST_ROUNDINGS) * unit + shared) * got.size
    reason = ""
    if not got.relative <= bound and not got.negligible(scale):
        reason = f"its error is {got.relative:.3g}, the plain model's {own.relative:.3g}"
    elif not got.largest <= largest_bound and not got.negligible(scale):
        reason = f"its largest error is {got.largest:.3g}, the plain model's {own.largest:.3g}"
    return OutputError(
        path=path, original=own.relative, integrated=got.relative, bound=bound, original_largest=own.largest,
        integrated_largest=got.largest, largest_bound=largest_bound, ok=not reason, reason=reason,
    )  # fmt: skip


def _misfit(plain: Any, integrated: Any) -> str:
    if not isinstance(plain, Tensor) or not isinstance(integrated, Tensor):
        return "" if type(plain) is type(integrated) else f"{type(integrated).__name__}, not {type(plain).__name__}"
    if plain.shape != integrated.shape:
        return f"its shape is {list(integrated.shape)}, not {list(plain.shape)}"
    return "" if plain.dtype == integrated.dtype else f"its dtype is {integrated.dtype}, not {plain.dtype}"


class _Errors(NamedTuple):
    """Relative and absolute error, largest difference, largest size, how many numbers."""

    relative: float
    absolute: float = 0.0
    largest: float = 0.0
    size: float = 0.0
    numbers: int = 1

    def negligible(self, scale: float) -> bool:
        """A few numbers near zero that float32 cannot tell from zero beside the other outputs.

        A loss is the difference of two numbers of the logits' size.
        """
        return self.numbers < _FEW and self.absolute <= _ROUNDINGS * 2.0**-24 * scale


_UNLIKE_EACH_OTHER = _Errors(float("inf"), float("inf"), float("inf"))


def _errors(value: Any, target: Any) -> _Errors:
    """How a value differs from the right one; infinitely where they are not comparable."""
    if not isinstance(value, Tensor) or not isinstance(target, Tensor):
        if isinstance(value, Tensor) or isinstance(target, Tensor) or target is None:
            return _UNLIKE_EACH_OTHER
        difference, size = abs(float(value) - float(target)), abs(float(target))
        relative = difference / size if size and isinstance(value, float) else float(difference > 0)
        return _Errors(relative, difference, difference, size)
    if value.shape != target.shape:
        return _UNLIKE_EACH_OTHER
    if value.numel() == 0:
        return _Errors(0.0, numbers=0)
    if not value.is_floating_point():
        return _Errors(float((value != target).double().mean()), numbers=value.numel())
    return _tensor_errors(value, target)


def _tensor_errors(value: Tensor, target: Tensor) -> _Errors:
    got, expected = value.double(), target.double()
    special = ~torch.isfinite(expected)
    agree = (got == expected) | (torch.isnan(got) & torch.isnan(expected))
    # A number too large for the dtype may be the largest, or infinite.
    overflow = (expected.abs() > torch.finfo(value.dtype).max) & torch.isinf(got) & (got.sign() == expected.sign())
    if bool((special & ~agree).any()) or bool((~torch.isfinite(got) & ~agree & ~overflow).any()):
        return _UNLIKE_EACH_OTHER
    usual = ~special & ~overflow
    difference = torch.where(usual, got - expected, 0.0)
    kept = torch.where(usual, expected, 0.0)
    norm, absolute = float(kept.norm()), float(difference.norm())
    relative = absolute / norm if norm else absolute
    return _Errors(relative, absolute, float(difference.abs().max()), float(kept.abs().max()), value.numel())


def roundoff_of(model: nn.Module) -> float:
    """Unit roundoff of the coarsest floating dtype among a model's parameters."""
    found: Sequence[Tensor] = [value for value in model.parameters() if value.is_floating_point()]
    return max((torch.finfo(value.dtype).eps / 2 for value in found), default=2.0**-24)
