"""What an exported kernel carries about itself: the calls that it may take, and where all of it is from.

A size is named by the input and the dimension in which it stands (``x[1]``), so that a package needs to know
nothing of the operation; dtypes are those of all inputs in their order.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import autokernel
from autokernel.errors import UsageError
from autokernel.export.selection import KeptKernel
from autokernel.integration.coverage import without_numbers
from autokernel.integration.evidence import PassedCase, number_ranges
from autokernel.ops.spec import KernelSpec, dtype_named
from autokernel.verdict import Status
from autokernel.verifier.large import rows_of

__all__ = ["ADMITTED", "facts_of", "parameters_of"]

ADMITTED = ("verified", "range")
_FORMAT = 1


def parameters_of(spec: KernelSpec) -> tuple[list[str], dict[str, Any]]:
    """The names of the operation's inputs, and its options with their defaults, in the order of the signature."""
    defaults = spec.defaults()
    return [name for name in inspect.signature(spec.reference).parameters if name not in defaults], defaults


def facts_of(kept: KeptKernel, admit: str = "verified") -> dict[str, Any]:
    """Everything that evidence.json holds, JSON-ready.

    Args:
        kept: The kernel.
        admit: ``verified``: the guard admits sizes that passed; ``range``: also sizes between them.

    Raises:
        UsageError: ``admit`` is neither of the two.
    """
    if admit not in ADMITTED:
        raise UsageError(f"admit is {admit!r}; use {' or '.join(map(repr, ADMITTED))}")
    inputs, defaults = parameters_of(kept.spec)
    forms = {(_key(case), case.dtype): _inputs_of(kept.spec, case) for case in kept.passed}
    rows = _row_inputs(kept.spec, list(forms.values()))
    cases = {
        (_sizes(inputs, forms[_key(case), case.dtype], rows), _dtypes(forms[_key(case), case.dtype]),
         without_numbers(case.options))
        for case in kept.passed
    }  # fmt: skip
    return {
        "format": _FORMAT,
        "operation": kept.spec.name,
        "backend": kept.backend,
        "inputs": inputs,
        "options": defaults,
        "admit": admit,
        "device": {"kind": kept.device_kind, "name": kept.device_name, "description": kept.verdict.device},
        "interpreted": kept.interpreted,
        "rows": rows,
        "layouts": sorted({case.layout for case in kept.passed}),
        "strided": list(kept.spec.strided_inputs),
        "numbers": {name: list(ends) for name, ends in number_ranges(kept.passed).items()},
        "cases": sorted(cases, key=repr),
        "provenance": _provenance(kept),
        "verification": _verification(kept),
        "timing": _timing(kept),
    }


def _key(case: PassedCase) -> tuple[tuple[str, int], ...]:
    return tuple(case.shape.items())


def _inputs_of(spec: KernelSpec, case: PassedCase) -> tuple[Tensor, ...]:
    """The inputs of a case, for their shapes and dtypes; without values wherever the spec can do without."""
    arguments = case.shape, dtype_named(case.dtype)
    with contextlib.suppress(Exception), FakeTensorMode():  # a spec that looks at values has to have them
        return spec.make_inputs(*arguments, torch.Generator().manual_seed(0))
    return spec.make_inputs(*arguments, torch.Generator().manual_seed(0))


def _row_inputs(spec: KernelSpec, forms: list[tuple[Tensor, ...]]) -> list[int]:
    """The inputs ``x[..., N]`` that were verified with several numbers of dimensions, if their rows are independent."""
    varying = [index for index, values in enumerate(zip(*forms, strict=True)) if len({one.dim() for one in values}) > 1]
    rows = rows_of(spec) if varying else None
    return varying if rows is not None and set(varying) <= set(rows.inputs) else []


def _sizes(names: list[str], inputs: tuple[Tensor, ...], rows: list[int]) -> tuple[tuple[str, int], ...]:
    shapes = [
        (value.shape[:-1].numel(), value.shape[-1]) if index in rows else tuple(value.shape)
        for index, value in enumerate(inputs)
    ]
    return tuple(
        (f"{name}[{place}]", size)
        for name, shape in zip(names, shapes, strict=True)
        for place, size in enumerate(shape)
    )


def _dtypes(inputs: tuple[Tensor, ...]) -> str:
    return " ".join(str(value.dtype).removeprefix("torch.") for value in inputs)


def _provenance(kept: KeptKernel) -> dict[str, Any]:
    details = kept.verdict.details
    return {
        "run": kept.run.path.name,
        "experiment": kept.experiment.number,
        "commit": kept.experiment.commit,
        "sha256": hashlib.sha256(kept.source.encode()).hexdigest(),
        "agent": kept.experiment.agent,
        "decided": kept.experiment.timestamp,
        "autokernel": autokernel.__version__,
        **{name: details[name] for name in ("harness", "torch", "triton", "driver", "python") if details.get(name)},
    }


def _verification(kept: KeptKernel) -> list[dict[str, Any]]:
    return [
        {
            "stage": stage.name.value,
            "status": stage.status.value,
            "passed": sum(case.status is Status.PASS for case in stage.cases),
            "not_tested": [{"case": case.label, "why": case.reason} for case in stage.cases
                           if case.status is Status.SKIP],
        }
        for stage in kept.verdict.stages
    ]  # fmt: skip


def _timing(kept: KeptKernel) -> list[dict[str, Any]]:
    """Times in microseconds with the quantiles 0.2 and 0.8, speedups with their 95 % interval."""
    if kept.measurement is None or kept.interpreted:  # the interpreter's time is no speed
        return []
    return [
        {
            "case": case.label,
            "method": case.method,
            "fraction_of_peak": case.fraction_of_peak,
            "times_us": {name: [one.latency_us, one.low_us, one.high_us] for name, one in case.contestants.items()},
            "speedups": {name: [ratio.value, ratio.low, ratio.high] for name, ratio in case.speedups.items()},
        }
        for case in kept.measurement.cases
    ]
