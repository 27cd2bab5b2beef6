"""Offsets beyond 2**31 elements: one case whose tensors are larger than 32-bit arithmetic can address.

It is tried for operations whose rows are independent: the runner repeats a small block of rows until the
first input holds more than 2**31 elements, calls the kernel once, and hands back a few rows of the result
(the last ones, those around the boundary, some at random), which are compared with the right answer for
the block.  The block has an odd number of rows, so an offset that wraps around lands on other values.

Where memory or time do not suffice, where rows depend on each other, and in Triton's interpreter the
case is not tested, and says so.  Units: bytes, seconds.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from autokernel.ops.spec import Case, KernelSpec, dtype_named
from autokernel.runner.client import RunnerDied
from autokernel.runner.protocol import ARENA_BYTES
from autokernel.verdict import CaseResult, Status
from autokernel.verifier import golden as golden_module
from autokernel.verifier.trial import Call, Trial, dead_case

__all__ = ["ELEMENTS", "Rows", "judge_large", "rows_of"]

ELEMENTS = 2**31
_BLOCK_ELEMENTS = 200_000
_SAMPLES = 24
_SLACK_BYTES = 1 << 30
_PROBE = 64  # the probe that foretells the time has so many times fewer rows


@dataclasses.dataclass(frozen=True)
class Rows:
    """How a spec's rows are made longer in number.

    Attributes:
        name: The size that counts rows.
        inputs: Indices of the inputs whose first dimension it is.
        shape: The listed shape whose rows have the most elements; other sizes are small.
        elements: Those of a row of the first input.
    """

    name: str
    inputs: tuple[int, ...]
    shape: Mapping[str, int]
    elements: int

    @property
    def block(self) -> int:
        """How many rows the block has: odd, so that no power of two is a multiple of it."""
        return max(3, min(61, _BLOCK_ELEMENTS // self.elements) | 1)


def rows_of(spec: KernelSpec) -> Rows | None:
    """Find a size along which the operation's rows are independent, by trying it; None if there is none."""
    names = list(spec.shapes[0])
    listed = [shape for shape in (*spec.shapes, *spec.large_shapes, *(spec.edge_shapes or ())) if list(shape) == names]
    dtype = dtype_named(spec.dtypes[0])
    for name in names:
        try:
            inputs = _independent(spec, name, dtype)
        except Exception:  # the operation is not defined for such sizes
            continue
        if inputs:
            sizes = [_row_elements(spec, shape, name, dtype) for shape in listed]
            shape = _slimmed(spec, listed[sizes.index(max(sizes))], name, max(sizes), dtype)
            return Rows(name, inputs, shape, max(sizes))
    return None


def _slimmed(
    spec: KernelSpec, shape: Mapping[str, int], rows: str, elements: int, dtype: torch.dtype
) -> Mapping[str, int]:
    """Give sizes that the first input does not have their least listed value, such as a product's number of columns.

    What passes 2**31 elements is then the input alone, not also a workspace that a kernel makes of right size.
    """
    for name in shape:
        if name != rows:
            slim = {**shape, name: min(listed.get(name, shape[name]) for listed in spec.shapes)}
            try:
                kept = _row_elements(spec, slim, rows, dtype) == elements
            except Exception:  # the operation is not defined for such sizes
                continue
            shape = slim if kept else shape
    return shape


def _independent(spec: KernelSpec, name: str, dtype: torch.dtype) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(0)
    few, many = ({**spec.shapes[0], name: count} for count in (7, 11))
    first, second = (spec.make_inputs(shape, dtype, generator) for shape in (few, many))
    inputs = tuple(
        index
        for index, (a, b) in enumerate(zip(first, second, strict=True))
        if a.dim() and (a.shape[0], b.shape[0]) == (7, 11) and a.shape[1:] == b.shape[1:]
    )
    if 0 not in inputs or any(
        first[index].shape != second[index].shape for index in set(range(len(first))) - {*inputs}
    ):
        return ()
    wide = [value.double() if value.is_floating_point() else value for value in first]
    whole = spec.reference(*wide)
    part = spec.reference(*[value[2:5] if index in inputs else value for index, value in enumerate(wide)])
    same = whole.dim() > 0 and whole.shape[0] == 7 and torch.allclose(whole[2:5], part, rtol=1e-9, atol=1e-12)
    return inputs if same else ()


def _row_elements(spec: KernelSpec, shape: Mapping[str, int], name: str, dtype: torch.dtype) -> int:
    return spec.make_inputs({**shape, name: 1}, dtype, torch.Generator().manual_seed(0))[0].numel()


def judge_large(
    trial: Trial, dtype: str, seed: int, *, options: Mapping[str, Any] | None = None, elements: int = ELEMENTS
) -> CaseResult:
    """Try the case on a candidate that has passed all others.

    Args:
        trial: The candidate's trial.
        dtype: The target's dtype; a half-width one is taken instead if the spec has any.
        seed: Of the block's values and of the rows that are looked at.
        options: Keyword arguments of the call, those of an extension.
        elements: The first input has more than so many.
    """
    begin = time.perf_counter()
    narrow = [name for name in (dtype, *trial.spec.dtypes) if dtype_named(name).itemsize == 2]
    label = f"offsets beyond {elements} elements"
    rows = None if trial.interpreted else rows_of(trial.spec)
    if rows is None:
        why = "Triton's interpreter is too slow" if trial.interpreted else "its rows depend on each other"
        return CaseResult(label=label, status=Status.SKIP, reason=f"not tested: {why}")
    shape = {**rows.shape, rows.name: rows.block}
    case = Case(shape=shape, dtype=narrow[0] if narrow else dtype, options=dict(options or {}))
    try:
        result = _Attempt(trial, rows, case, seed, elements).result()
    except RunnerDied as died:
        result = dead_case(case, died)
    except torch.OutOfMemoryError:
        result = CaseResult(label="", status=Status.SKIP, reason="not tested: the judge's device has too little memory")
    finally:
        trial.runner.arena.release()
    return dataclasses.replace(result, label=f"{case.label}, {label}", seconds=time.perf_counter() - begin)


class _Attempt:
    def __init__(self, trial: Trial, rows: Rows, case: Case, seed: int, elements: int) -> None:
        self.trial, self.rows, self.case = trial, rows, case
        generator = torch.Generator(device=trial.device).manual_seed(seed)
        self.block = trial.spec.make_inputs(case.shape, dtype_named(case.dtype), generator)
        self.expected = golden_module.golden(trial.spec, case, self.block)
        self.count = elements // rows.elements + rows.block
        order = random.Random(seed)
        widest = max(rows.elements, self.expected.value[0].numel())
        boundary = elements // widest  # the row where the input's or the output's offset passes it
        near = [row for row in range(boundary - 2, boundary + 3) if 0 <= row < self.count]
        self.samples = sorted({*near, 0, self.count - 1, *(order.randrange(self.count) for _ in range(_SAMPLES))})

    def result(self) -> CaseResult:
        needed, free = self._needed(), self._free()
        if needed > free:
            return self._skip(f"needs {needed / 1e9:.0f} GB of memory, {free / 1e9:.0f} GB are free")
        limit = self.trial.runner.limits.call_seconds
        few = max(self.rows.block, self.count // _PROBE)
        probe = self._ask(few, [0])
        foretold = float(probe["seconds"]) * self.count / few if probe["ok"] else 0.0
        if foretold > limit / 2:
            return self._skip(f"would take about {foretold:.0f} s")
        answer = self._ask(self.count, self.samples)
        if not answer["ok"]:
            if "OutOfMemoryError" in answer["error"] or "can't allocate memory" in answer["error"]:
                return self._skip(f"kernel_fn itself needs more memory than there is: {answer['error'][:200]}")
            return CaseResult(label="", status=Status.CRASH, reason=f"kernel_fn raised {answer['error']}")
        return self._assess(answer)

    @staticmethod
    def _skip(reason: str) -> CaseResult:
        return CaseResult(label="", status=Status.SKIP, reason=f"not tested: {reason}")

    def _needed(self) -> int:
        tensors = [*[self.block[index] for index in self.rows.inputs], self.expected.value]
        per_row = sum(value.numel() // self.rows.block for value in tensors)
        return self.count * per_row * dtype_named(self.case.dtype).itemsize + _SLACK_BYTES

    def _free(self) -> int:
        if self.trial.device != "cpu":
            return int(torch.cuda.mem_get_info(self.trial.device)[0])
        with open("/proc/meminfo") as lines:
            available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
        return min(available - _SLACK_BYTES, ARENA_BYTES)

    def _ask(self, count: int, samples: Sequence[int]) -> dict[str, Any]:
        descriptions, _originals, free = self.trial.put(self.block)
        self.place = {"offset": free, "capacity": 1 << 30}
        request = {
            "op": "large",
            "role": "candidate",
            "inputs": descriptions,
            "tiled": list(self.rows.inputs),
            "rows": count,
            "samples": list(samples),
            "options": dict(self.case.options),
            "out": self.place,
            "free": free + self.place["capacity"],
        }
        doing = f"calling kernel_fn on {count} rows like those of {self.case.label}"
        return self.trial.runner.ask(request, seconds=self.trial.runner.limits.call_seconds, doing=doing)

    def _assess(self, answer: Mapping[str, Any]) -> CaseResult:
        shape = [self.count, *self.expected.value.shape[1:]]
        if answer.get("size") != shape:
            reason = f"the output has shape {answer.get('size')}, expected {shape}"
            return CaseResult(label="", status=Status.FAIL, reason=reason)
        output = self.trial.take(answer["output"], self.place)[0]
        index = torch.tensor([row % self.rows.block for row in self.samples], device=self.trial.device)
        slack = self.expected.slack
        whole = slack.dim() == self.expected.value.dim() and slack.shape[0] == self.rows.block
        expected = dataclasses.replace(
            self.expected,
            value=self.expected.value[index],
            slack=slack[index] if whole else slack,
            baseline=lambda: self.expected.baseline()[index],
        )
        call = Call(output, "" if output is not None else "the output cannot be read", Status.FAIL, None, 0.0, answer)
        result = self.trial.assess(self.case, call, expected)
        where = f"of the rows {self.samples[:3]} ... {self.samples[-1]} of {self.count}, "
        return dataclasses.replace(
            result, reason=where + result.reason if result.status is Status.FAIL else result.reason
        )
