"""One candidate in one runner: put inputs before it, take its output, compare.

The judge's half of a call.  Inputs go into the arena with guard bands of NaN around them and are
compared byte for byte afterwards; the output comes back as bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from autokernel.errors import UsageError
from autokernel.ops import fills
from autokernel.ops.spec import Case, KernelSpec, dtype_named
from autokernel.runner import repeated
from autokernel.runner.client import Runner, RunnerDied
from autokernel.runner.protocol import ARENA_BYTES, GUARD_BYTES
from autokernel.verdict import CaseResult, Finding, Status
from autokernel.verifier import golden as golden_module
from autokernel.verifier.golden import Comparison, Golden
from autokernel.verifier.layouts import lay_out

__all__ = ["SLOT_BYTES", "Call", "Trial", "derived_seed", "make_case_inputs"]

INTERPRETER_ELEMENTS = 150_000
INTERPRETER_ROWS = 10_000  # a program for each takes about a millisecond
CPU_FLOPS = 10e9
# Inputs come to lie at a few recurring addresses, so that results remembered by address are asked for again.
SLOT_BYTES = 64 << 20
_ALIGNMENT = 4096
# A kernel may leave work on each row to PyTorch, which is much of the elements only where rows are short.
_TELLING_ELEMENTS = 8192
_CALL_SHARE = 0.4
_REMEMBERED = 2.0
_NOISE_SECONDS = 10e-6


def derived_seed(seed: int, *words: object) -> int:
    """A seed that follows from ``seed`` and the words, and tells nothing about either."""
    digest = hashlib.sha256(repr((seed, *words)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def make_case_inputs(spec: KernelSpec, case: Case, seed: int, device: str) -> tuple[Tensor, ...]:
    """Make the inputs of ``case`` on ``device``: values by its fill, memory by its layout.

    Raises:
        UsageError: The operation is not defined for the case's sizes.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    try:
        inputs = spec.make_inputs(case.shape, dtype_named(case.dtype), generator)
    except ValueError as error:
        raise UsageError(f"{spec.name} is not defined for {case.label}: {error}; give other sizes") from error
    if case.fill != "normal":
        patterns = spec.fills if spec.fills is not None else fills.derived(inputs)
        inputs = patterns[case.fill](inputs, case.shape, generator)
    return lay_out(inputs, case.layout, spec.strided_inputs)


def _elements(inputs: Sequence[Tensor], answer: Mapping[str, Any]) -> int:
    size = answer.get("output", {}).get("size", ())
    return sum(value.numel() for value in inputs) + int(torch.Size(size).numel())


@dataclasses.dataclass
class Call:
    """What came of one call.

    Attributes:
        output: The output on the judge's device, or None if it is no usable tensor.
        problem: Why there is no usable output, or "".
        status: CRASH when the kernel raised, FAIL when it returned something unfit.
        raw: The output's bytes, uint8 on the CPU.
        seconds: Time of the call in the runner.
        answer: The runner's whole answer.
    """

    output: Tensor | None
    problem: str
    status: Status
    raw: Tensor | None
    seconds: float
    answer: Mapping[str, Any]


class Trial:
    """Calls of one loaded candidate.

    Args:
        runner: A runner in which the candidate was loaded.
        spec: The operation.
        device: The judge's device, where golden values are computed.
        backend: The backend that the candidate names.
        timed: Shapes on which the candidate will be timed, other than the spec's.
    """

    def __init__(
        self,
        runner: Runner,
        spec: KernelSpec,
        device: str,
        backend: str,
        *,
        timed: Sequence[Mapping[str, int]] = (),
    ) -> None:
        self.runner = runner
        self.spec = spec
        self.device = device
        self.interpreted = device == "cpu" and backend == "triton"
        # Tried only where the time for them is.
        self._bulky = [*spec.large_shapes, *spec.timing_shapes, *spec.cpu_timing_shapes, *timed]
        self.findings: dict[tuple[str, str], Finding] = {}
        self.computed: dict[str, int] = {}
        self.observed_elements = 0
        self.host_elements = 0
        self.peak_bytes = 0
        self._bytes = torch.frombuffer(runner.arena.map, dtype=torch.uint8)

    # Memory

    def put(self, inputs: Sequence[Tensor], start: int = 0) -> tuple[list[dict[str, Any]], list[Tensor], int]:
        """Write inputs into the arena from ``start`` on.

        Returns:
            Their descriptions for the runner, the bytes as they were written, and the next free offset.
        """
        descriptions, originals = [], []
        cursor = start
        for value in inputs:
            storage = value.untyped_storage()
            raw = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage).cpu()
            offset = cursor + GUARD_BYTES
            self._bytes[cursor:offset] = 0xFF
            self._bytes[offset : offset + raw.numel()] = raw
            self._bytes[offset + raw.numel() : offset + raw.numel() + GUARD_BYTES] = 0xFF
            descriptions.append(
                {
                    "offset": offset,
                    "bytes": raw.numel(),
                    "dtype": str(value.dtype).removeprefix("torch."),
                    "size": list(value.shape),
                    "stride": list(value.stride()),
                    "start": value.storage_offset(),
                }
            )
            originals.append(raw)
            cursor = -(-(offset + raw.numel() + GUARD_BYTES) // _ALIGNMENT) * _ALIGNMENT
        return descriptions, originals, cursor

    def take(self, facts: Mapping[str, Any], place: Mapping[str, int]) -> tuple[Tensor | None, Tensor | None]:
        """Read an exported output: its bytes, and a tensor on the judge's device; None if it did not fit."""
        count = int(facts["bytes"])
        if count > place["capacity"]:
            return None, None
        raw = self._bytes[place["offset"] : place["offset"] + count].clone()
        dtype = getattr(torch, str(facts["dtype"]), None)
        size = [int(part) for part in facts["size"]]
        if not isinstance(dtype, torch.dtype) or raw.numel() != dtype.itemsize * int(torch.Size(size).numel()):
            return None, None
        return raw.view(dtype).reshape(size).to(self.device), raw

    # Calling

    def call(
        self,
        case: Case,
        inputs: Sequence[Tensor],
        *,
        start: int = 0,
        poison: int = 0,
        hold: int | None = None,
        slot: int | None = None,
        observe: str = "dispatch",
        private: bool = False,
        meanwhile: Any = None,
    ) -> Call:
        """Call the candidate once and check everything about the call but the values.

        Args:
            case: Gives the options and the name for messages.
            inputs: On the judge's device.
            start: Where in the arena the inputs go.
            poison: Which garbage fresh memory holds, 0 or 1.
            hold: Keep the output in the runner under this number, for a later recheck.
            slot: Reuse the input tensors of an earlier call with this number, rewritten in place.
            observe: Which observer sees PyTorch's operators: ``dispatch`` or ``profile``.
            private: Give it inputs in memory of the runner's own, as timed calls have them.
            meanwhile: Computed by the judge while the runner works.

        Raises:
            RunnerDied: The runner ended or passed its deadline.
        """
        descriptions, originals, free = self.put(inputs, start)
        place = {"offset": free, "capacity": ARENA_BYTES - free}
        request = {
            "op": "call",
            "role": "candidate",
            "inputs": descriptions,
            "options": dict(case.options),
            "observe": observe,
            "poison": poison,
            "hold": hold,
            "slot": slot,
            "private": private,
            "out": place,
        }
        answer = self.runner.ask(
            request,
            seconds=self.runner.limits.call_seconds,
            doing=f"calling kernel_fn on {case.label}",
            meanwhile=meanwhile,
        )
        self.note(answer)
        self._check_memory(descriptions, originals)
        if not answer["ok"]:
            return Call(None, f"kernel_fn raised {answer['error']}", Status.CRASH, None, 0.0, answer)
        self._account(case, answer, inputs, observe)
        if "output" not in answer:
            returned = answer.get("returned")
            return Call(None, f"kernel_fn returned {returned}, not a tensor", Status.FAIL, None, 0.0, answer)
        facts = answer["output"]
        wrong = self._wrong_kind(facts, inputs, case.options)
        output, raw = self.take(facts, place)
        if not wrong and output is None:
            wrong = (
                f"kernel_fn returned {facts['bytes']} bytes, which cannot be read as {facts['dtype']}{facts['size']}"
            )
        return Call(None if wrong else output, wrong, Status.FAIL, raw, float(answer["seconds"]), answer)

    def note(self, answer: Mapping[str, Any]) -> None:
        """Record the findings that an answer of the runner holds."""
        for kind, evidence in answer.get("findings", ()):
            self.add_finding(str(kind), str(evidence))

    def add_finding(self, kind: str, evidence: str) -> None:
        """Record a finding once."""
        self.findings.setdefault((kind, evidence), Finding(kind, evidence))

    def told(self, kind: str) -> bool:
        """Whether there is a finding of a kind."""
        return any(known == kind for known, _evidence in self.findings)

    def absorb(self, other: Trial) -> None:
        """Take over what another trial of the same candidate has shown so far."""
        for finding in other.findings.values():
            self.add_finding(finding.kind, finding.evidence)
        for name, count in other.computed.items():
            self.computed[name] = self.computed.get(name, 0) + count
        self.observed_elements += other.observed_elements
        self.host_elements += other.host_elements
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        other.computed, other.observed_elements, other.host_elements = {}, 0, 0

    def inspect(self) -> None:
        """Ask the runner what the candidate has caused and replaced so far."""
        self.note(self.runner.ask({"op": "inspect"}, seconds=30.0, doing="looking for replaced functions"))

    def _account(self, case: Case, answer: Mapping[str, Any], inputs: Sequence[Tensor], observe: str) -> None:
        self.note_operators(case, answer, inputs, observe, least=_TELLING_ELEMENTS)
        if observe == "dispatch":
            self.observed_elements += _elements(inputs, answer)
            for name, count in answer["computed"].items():
                self.computed[str(name)] = self.computed.get(str(name), 0) + int(count)
        self.host_elements += int(answer["host_elements"])
        self.peak_bytes = max(self.peak_bytes, int(answer["peak_bytes"]))

    def note_operators(
        self, case: Case, answer: Mapping[str, Any], inputs: Sequence[Tensor], observe: str, *, least: int = 0
    ) -> None:
        """Add a finding if PyTorch's operators did much of the work in a call on at least so many elements."""
        elements = _elements(inputs, answer)
        computed = {str(name): int(count) for name, count in answer.get("computed", {}).items()}
        if not self.told("library_call") and elements >= least and sum(computed.values()) > _CALL_SHARE * elements:
            names = ", ".join(sorted(computed, key=lambda name: -computed[name])[:6])
            share = sum(computed.values()) / elements
            how = "under PyTorch's profiler, " if observe == "profile" else ""
            evidence = f"on {case.label}, {how}PyTorch operators ({names}) worked on {share:.0%} of the elements"
            self.add_finding("library_call", evidence)

    def _check_memory(self, descriptions: Sequence[Mapping[str, Any]], originals: Sequence[Tensor]) -> None:
        for index, (description, original) in enumerate(zip(descriptions, originals, strict=False)):
            begin, end = description["offset"], description["offset"] + description["bytes"]
            if not torch.equal(self._bytes[begin:end], original):
                changed = int((self._bytes[begin:end] != original).sum())
                self.add_finding("input_mutated", f"input {index} was changed by the call, {changed} bytes of it")
            around = (self._bytes[begin - GUARD_BYTES : begin], self._bytes[end : end + GUARD_BYTES])
            if any(bool((band != 0xFF).any()) for band in around):
                self.add_finding("out_of_bounds_write", f"bytes just before or after input {index} were overwritten")

    def _wrong_kind(self, facts: Mapping[str, Any], inputs: Sequence[Tensor], options: Mapping[str, Any]) -> str:
        names = self.spec.dtypes_of_result(inputs, options)
        if facts["dtype"] not in names:
            return f"the output has dtype {facts['dtype']}, expected {' or '.join(sorted(names))}"
        if facts["device"] != self.device.partition(":")[0]:
            return f"the output is on {facts['device']}, expected {self.device}"
        if facts["layout"] != "strided":
            return f"the output has the layout {facts['layout']}, expected a dense (strided) tensor"
        return ""

    def put_sets(self, sets: Sequence[Sequence[Tensor]]) -> tuple[list[list[dict[str, Any]]], int]:
        """Write input sets into the arena, one behind the other; return their descriptions and the next free offset."""
        cursor, described = 0, []
        for one in sets:
            descriptions, _originals, cursor = self.put(one, cursor)
            described.append(descriptions)
        return described, cursor

    def recall(self, case: Case, inputs: Sequence[Tensor], seed: int, seconds: float) -> CaseResult | None:
        """Change a few elements before each of some calls: is the answer right, and does it take its time?

        Add a finding if a call is fast only because the same content was seen before.  Three attempts must
        say so, because a busy machine slows single calls, too.

        Returns:
            The judgement of the latest output of the first attempt, or None if there was none.
        """
        inputs = [value.contiguous() for value in inputs]
        result = None
        evidence = ""
        for rounds in (1,) if self.interpreted else (8, 16, 32):
            seeds = [derived_seed(seed, rounds, number) for number in range(rounds)]
            descriptions, _originals, free = self.put(inputs)
            place = {"offset": free, "capacity": ARENA_BYTES - free}
            request = {"op": "recall", "role": "candidate", "inputs": descriptions, "options": dict(case.options)}
            answer = self.runner.ask(
                {**request, "seeds": seeds, "seconds": seconds, "out": place},
                seconds=self.runner.limits.timing_seconds,
                doing=f"repeating calls on {case.label}",
            )
            if not answer["ok"]:
                return result  # what it raises is seen where its output is looked at
            if result is None and "bytes" in answer["output"]:
                output, raw = self.take(answer["output"], place)
                call = Call(output, "", Status.PASS, raw, 0.0, answer)
                changed = [value.clone() for value in inputs]
                for one in seeds[: int(answer["rounds"])]:
                    repeated.change(changed, one)
                result = self.assess(case, call, golden_module.golden(self.spec, case, changed))
            if self.interpreted:  # the interpreter's time tells nothing
                return result
            fresh, again = float(answer["fresh"]), float(answer["again"])
            if fresh < _REMEMBERED * again + _NOISE_SECONDS:
                return result
            evidence = (
                f"on {case.label} a call takes {fresh * 1e6:.1f} us when a few elements are new and "
                f"{again * 1e6:.1f} us when the same content comes again"
            )
        self.add_finding("remembered_result", evidence)
        return result

    # Judging

    def not_testable(self, case: Case) -> str:
        """Why a case cannot be tried here, or ""."""
        if self.interpreted:
            if case.dtype == "bfloat16" and not self.runner.facts.get("bfloat16"):
                return "Triton's interpreter computes bfloat16 wrongly in this version"
            rows = max(case.shape.values())
            many = rows > INTERPRETER_ROWS and rows > self.spec.terms(case.shape)
            if case.shape in self._bulky and (many or math.prod(case.shape.values()) > INTERPRETER_ELEMENTS):
                return "too large for Triton's interpreter"
        elif self.device == "cpu" and self.spec.flops is not None and case.shape in self._bulky:
            flops = self.spec.flops(case.shape)
            if flops > CPU_FLOPS:  # a simple kernel in one thread would take a minute, at each experiment
                return f"{flops / 1e9:.0f} GFLOP are too many for a CPU"
        return ""

    def judge(self, case: Case, seed: int, *, start: int = 0, poison: int = 0) -> CaseResult:
        """Try one case and say how it went."""
        reason = self.not_testable(case)
        if reason:
            return CaseResult(label=case.label, status=Status.SKIP, reason=reason)
        begin = time.perf_counter()
        try:
            inputs = make_case_inputs(self.spec, case, seed, self.device)
            expected: list[Golden] = []
            call = self.call(
                case,
                inputs,
                start=start,
                poison=poison,
                meanwhile=lambda: expected.append(golden_module.golden(self.spec, case, inputs)),
            )
            result = self.assess(case, call, expected[0])
        except torch.OutOfMemoryError:
            return CaseResult(label=case.label, status=Status.SKIP, reason="the judge's device has too little memory")
        except RunnerDied as died:
            result = dead_case(case, died)
        return dataclasses.replace(result, seconds=time.perf_counter() - begin)

    def assess(self, case: Case, call: Call, expected: Golden) -> CaseResult:
        """Compare what a call returned with the right answer."""
        if call.output is None:
            return CaseResult(label=case.label, status=call.status, reason=call.problem)
        if call.output.shape != expected.value.shape:
            reason = f"the output has shape {list(call.output.shape)}, expected {list(expected.value.shape)}"
            return CaseResult(label=case.label, status=Status.FAIL, reason=reason)
        comparison = golden_module.compare(call.output, expected)
        return CaseResult(
            label=case.label,
            status=Status.PASS if comparison.agrees else Status.FAIL,
            reason=comparison.note if comparison.agrees else explain(comparison),
            max_error=comparison.max_error,
            bound=comparison.bound,
            error_over_bound=comparison.error_over_bound,
            max_ulp=comparison.max_ulp,
            mismatched=comparison.mismatched,
            elements=comparison.elements,
        )


def dead_case(case: Case, died: RunnerDied) -> CaseResult:
    """The result of a case during which the runner ended."""
    status = Status.TIMEOUT if died.timed_out else Status.CRASH
    return CaseResult(label=case.label, status=status, reason=str(died))


def explain(comparison: Comparison) -> str:
    """Say where an output is wrong: element, got, expected, bound, how many."""
    index = ", ".join(map(str, comparison.worst))
    share = comparison.mismatched / max(comparison.elements, 1)
    return (
        f"element [{index}] is {comparison.got:.6g}, expected {comparison.expected:.6g} within {comparison.bound:.2g} "
        f"({comparison.error_over_bound:.3g} times the bound); {comparison.mismatched} of {comparison.elements} "
        f"elements ({share:.1%}) are outside their bound"
    )
