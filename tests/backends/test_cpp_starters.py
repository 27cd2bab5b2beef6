"""Every C++ starter against the golden values, over the verifier's own cases."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autokernel import ops, starters
from autokernel.ops.spec import Case, KernelSpec, dtype_named
from autokernel.verifier.golden import compare, golden
from autokernel.verifier.layouts import lay_out
from autokernel.verifier.plan import plan

OPERATIONS = [name for name in ops.names() if "cpp" in starters.backends(name)]
MOST_WORK = 1e7  # FLOP of a case; the larger ones are the verifier's business
TUNED = {
    "LANES = 1": "LANES = 16",
    "NUM_THREADS = 1": "NUM_THREADS = 3",
    "BLOCK_COLS = 64": "BLOCK_COLS = 16",
    "PREFETCH_ROWS = 0": "PREFETCH_ROWS = 2",
    "PREFETCH = 0": "PREFETCH = 256",
    "STREAM = False": "STREAM = True",
    "UNROLL = False": "UNROLL = True",
    "VECTOR_EXP = False": "VECTOR_EXP = True",
    "PAIRS = 1": "PAIRS = 8",
    "TILE_M = 1": "TILE_M = 4",
    "TILE_N = 16": "TILE_N = 32",
}


def load(source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(source, "kernel.py", "exec"), namespace)
    return namespace


def tuned(source: str) -> str:
    for declared, other in TUNED.items():
        source = source.replace(f"\n{declared}", f"\n{other}")
    return source


def small_cases(spec: KernelSpec) -> list[Case]:
    cases = [case for stage in plan(spec).values() for case in stage]
    return [case for case in cases if spec.flops is None or spec.flops(case.shape) < MOST_WORK]


def inputs_of(spec: KernelSpec, case: Case) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    inputs = spec.make_inputs(case.shape, dtype_named(case.dtype), generator)
    if case.fill != "normal":
        assert spec.fills is not None
        inputs = spec.fills[case.fill](inputs, case.shape, generator)
    return lay_out(inputs, case.layout, spec.strided_inputs)


@pytest.mark.parametrize("variant", ["as shipped", "tuned"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cpp_starter_agrees_with_the_golden_values_in_every_case(name: str, variant: str) -> None:
    spec = ops.get(name)
    source = starters.source(name, "cpp")
    kernel_fn = load(source if variant == "as shipped" else tuned(source))["kernel_fn"]

    wrong = []
    for case in small_cases(spec):
        inputs = inputs_of(spec, case)
        comparison = compare(kernel_fn(*inputs, **case.options), golden(spec, case, inputs))
        if comparison.mismatched:
            wrong.append(f"{case.label}: {comparison}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_tuned_cpp_starter_gives_the_same_bits_each_time(name: str) -> None:
    spec = ops.get(name)
    kernel_fn = load(tuned(starters.source(name, "cpp")))["kernel_fn"]
    inputs = spec.make_inputs(spec.shapes[-1], dtype_named(spec.dtypes[-1]), torch.Generator().manual_seed(2))

    first, second = kernel_fn(*inputs), kernel_fn(*inputs)

    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cpp_starter_declares_its_operation_and_backend(name: str) -> None:
    module = load(starters.source(name, "cpp"))

    assert (module["KERNEL_TYPE"], module["BACKEND"]) == (name, "cpp")
    assert "CPP_SRC" in module
