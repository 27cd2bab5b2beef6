"""The tuned Triton kernels: right in the interpreter on every path, and compiled for Hopper as they were meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from autokernel import ops, tuned
from autokernel.agents.constants import tunables
from autokernel.errors import UnknownOperation
from tests.tuned.hopper import Launch, launches, load

FOLDER = Path(tuned.__file__).parent / "triton"
TUNED = [name for name in ops.names() if "triton" in tuned.backends(name)]
BY_ROWS = ("cross_entropy", "layernorm", "reduce", "rmsnorm", "rotary_embedding", "softmax")
# Constants that send small sizes where large ones go, and sizes that are odd, even, and less than a vector.
PATHS = {
    "cross_entropy": [{"NARROW_COLS": 1, "LONG_WARPS": 1, "LONG_DEPTH": 2}],
    "layernorm": [{"MAX_TILE": 2, "LONG_BLOCK": 512}, {"PROGRAMS_PER_SM": 1, "STAGES": 3, "LATE_FROM": 1}],
    "reduce": [{"NARROW_COLS": 1, "HELD_COLS": 1, "LONG_WARPS": 1, "PART_COLS": 400, "PROGRAMS_PER_SM": 64}],
    "rmsnorm": [{"MAX_TILE": 2, "LONG_BLOCK": 512}, {"PROGRAMS_PER_SM": 1, "STAGES": 3, "LATE_FROM": 1}],
    "softmax": [{"MAX_TILE": 2, "LONG_WARPS": 1, "LONG_DEPTH": 2}, {"SHIFTED_FROM": 1}],
}
FEW = """
import dataclasses
from autokernel import ops
SPEC = dataclasses.replace(
    ops.get({name!r}),
    shapes=tuple(dict(zip({sizes!r}, size)) for size in ((5, 3), (3, 1041))),
    edge_shapes=tuple(dict(zip({sizes!r}, size)) for size in ((2, 8), (4, 9), (3, 1048), (2, 2113), (5, 513))),
)
"""
OF_PRODUCTS = {
    "matmul": [{}, {"SMALL": 0, "SHALLOW_K": 100, "DEEP_M": 32, "DEEP_N": 32, "SHALLOW_M": 32, "SHALLOW_N": 32}],
    "flash_attention": [{}, {"DESCRIBED": False, "HEADS_FIRST": True}],
    "fused_mlp": [{}, {"SMALL": 0, "GATE_M": 32, "GATE_F": 32, "DOWN_M": 32, "DOWN_N": 32, "FLATTEN": False}],
}


def changed(name: str, values: dict[str, object], folder: Path) -> str:
    """The path of the kernel with other constants."""
    text = tuned.source(name, "triton")
    for constant, value in values.items():
        text, count = re.subn(rf"^{constant} = [^#\n]+", f"{constant} = {value}  ", text, flags=re.MULTILINE)
        assert count == 1, constant
    file = folder / f"{name}.py"
    file.write_text(text)
    return str(file)


def launched(name: str, dtype: torch.dtype = torch.bfloat16, **shape: int) -> list[Launch]:
    pytest.importorskip("triton.backends.nvidia")
    inputs = ops.get(name).make_inputs(shape, dtype, torch.Generator().manual_seed(0))
    return launches(lambda: load(FOLDER / f"{name}.py").kernel_fn(*inputs))


def test_a_tuned_triton_kernel_says_what_it_is():
    assert set(BY_ROWS) < set(TUNED)
    for name in TUNED:
        text = tuned.source(name, "triton")
        assert f'KERNEL_TYPE = "{name}"' in text
        assert 'BACKEND = "triton"' in text


def test_a_tuned_kernel_that_there_is_not_is_named_with_the_backends_that_have_one():
    with pytest.raises(UnknownOperation, match=r"no tuned 'cuda' kernel for 'matmul' \(backends with one: triton\)"):
        tuned.source("matmul", "cuda")


@pytest.mark.parametrize("name", TUNED)
def test_the_constants_of_a_tuned_kernel_can_be_tuned(name):
    found = {one.name: one for one in tunables(tuned.source(name, "triton"))}
    assert len(found) >= 3
    for one in found.values():
        assert one.value in one.choices
        assert 2 <= len(one.choices) <= 8, one


@pytest.mark.thorough
@pytest.mark.parametrize("name", BY_ROWS)
def test_a_tuned_kernel_is_within_half_the_bound_everywhere(name, interpret):
    ratios = interpret(name, str(FOLDER / f"{name}.py"))["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.parametrize(("name", "values"), [(name, values) for name in PATHS for values in PATHS[name]])
def test_a_tuned_kernel_is_within_the_bound_on_the_paths_of_large_sizes(name, values, interpret, tmp_path):
    spec = tmp_path / "few.py"
    spec.write_text(FEW.format(name=name, sizes=list(ops.get(name).shapes[0])))
    ratios = interpret(str(spec), changed(name, values, tmp_path))["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "values"), [(name, values) for name in OF_PRODUCTS for values in OF_PRODUCTS[name]])
def test_a_tuned_product_is_within_the_bound_everywhere(name, values, interpret, tmp_path):
    ratios = interpret(name, changed(name, values, tmp_path))["ratios"]
    assert max(ratios.values()) <= 0.8, max(ratios.items(), key=lambda item: item[1])


VECTORS = r"ld\.global\S*\.v4\.b32"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cross_entropy", {"N": 4, "V": 50257}),
        ("layernorm", {"M": 4, "N": 4096}),
        ("reduce", {"M": 4, "N": 4099}),
        ("rmsnorm", {"M": 4, "N": 8192}),
        ("rotary_embedding", {"B": 1, "H": 4, "S": 64, "D": 128}),
        ("softmax", {"M": 4, "N": 4096}),
        ("softmax", {"M": 4, "N": 16385}),
        ("softmax", {"M": 2, "N": 50257}),
    ],
)
def test_a_kernel_by_rows_loads_sixteen_bytes_at_a_time_and_spills_nothing(name, shape):
    first = launched(name, **shape)[0]

    assert first.has(VECTORS), first.name
    assert first.spilled_bytes == 0


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("matmul", {"M": 512, "N": 512, "K": 2048}),
        ("flash_attention", {"B": 1, "H": 1, "S": 256, "D": 128}),
        ("flash_attention", {"B": 1, "H": 1, "S": 256, "D": 64}),
        ("fused_mlp", {"M": 256, "K": 256, "F": 512, "N": 256}),
    ],
)
def test_a_product_uses_tensor_cores_and_copies_by_descriptor_and_fits_hopper(name, shape):
    for launch in launched(name, **shape):
        assert launch.has(r"wgmma\.mma_async"), launch.name
        assert launch.has(r"cp\.async\.bulk\.tensor"), launch.name
        assert launch.spilled_bytes == 0
        assert launch.shared_bytes <= 232448  # what a block may have on sm_90


def test_a_product_with_rows_that_are_not_aligned_is_padded_first():
    names = [launch.name for launch in launched("matmul", M=1024, N=257, K=768)]
    assert names == ["pad_kernel", "described_kernel"]


@pytest.mark.gpu
@pytest.mark.thorough
@pytest.mark.parametrize("name", TUNED)
def test_a_tuned_kernel_is_accepted_on_the_gpu(name):
    from autokernel.evaluator import Evaluator

    with Evaluator(name, device="cuda") as evaluator:
        verdict = evaluator.verify(tuned.source(name, "triton"))
    assert verdict.accepted, verdict.reason
