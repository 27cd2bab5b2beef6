"""The files in docs/adding-an-operation.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from autokernel import backends, ops
from autokernel.backends import cuda
from autokernel.ops import fills
from autokernel.runner import kernels
from tests.ops.judging import worst
from tests.planting import needs_compiler

PAGE = Path(__file__).parents[2] / "docs" / "adding-an-operation.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's Python blocks, each written to the file that its first line names."""
    folder = tmp_path_factory.mktemp("user")
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        name = re.fullmatch(r"# (\w+\.py)", block.splitlines()[0])[1]
        (folder / name).write_text(block)
    return folder


def test_the_page_has_two_specs_and_a_kernel_for_each_backend(folder):
    texts = {"swiglu_kernel.py": "triton", "swiglu_cpp.py": "cpp", "swiglu_cuda.py": "cuda"}
    assert {file.name for file in folder.iterdir()} == {"swiglu_minimal.py", "swiglu.py", *texts}
    assert {name: backends.of((folder / name).read_text()) for name in texts} == texts


@pytest.mark.parametrize("file", ["swiglu_minimal.py", "swiglu.py"])
def test_a_spec_file_is_found_by_path_and_by_name(folder, file):
    spec = ops.resolve(str(folder / file))
    assert spec.name == "swiglu"
    assert ops.resolve(f"{folder / file}:swiglu").name == "swiglu"
    inputs = spec.make_inputs({"M": 3, "N": 5}, torch.float64, torch.Generator())
    expected = torch.nn.functional.silu(inputs[0]) * inputs[1]
    torch.testing.assert_close(spec.reference(*inputs), expected)


def test_the_derived_values_keep_shapes_and_dtypes(folder):
    spec = ops.resolve(str(folder / "swiglu_minimal.py"))
    generator = torch.Generator().manual_seed(0)
    inputs = spec.make_inputs(spec.shapes[0], torch.float16, generator)
    patterns = fills.derived(inputs)
    assert {"zeros_0", "large_1", "outlier_0"} <= set(patterns)
    for name, fill in patterns.items():
        filled = fill(inputs, spec.shapes[0], generator)
        assert [(x.shape, x.dtype) for x in filled] == [(x.shape, x.dtype) for x in inputs], name
        assert all(x.isfinite().all() for x in filled), name


def test_a_float32_gate_is_within_half_the_bound_and_pytorch_within_the_bound_and_a_wrong_gate_outside(folder):
    spec = ops.resolve(str(folder / "swiglu.py"))
    assert worst(spec, lambda gate, up: spec.reference(gate.float(), up.float()).to(gate.dtype)) <= 0.5
    assert worst(spec, spec.baseline) <= 1
    assert worst(spec, lambda gate, up: torch.nn.functional.gelu(gate) * up) > 10


def test_the_kernel_is_within_half_the_bound_everywhere(folder, interpret):
    ratios = interpret(str(folder / "swiglu.py"), str(folder / "swiglu_kernel.py"))["ratios"]
    assert max(ratios.values()) <= 0.55, max(ratios.items(), key=lambda item: item[1])


@needs_compiler
def test_the_cpp_kernel_is_within_half_the_bound_everywhere(folder):
    spec = ops.resolve(str(folder / "swiglu.py"))
    kernel_fn, backend = kernels.load(folder / "swiglu_cpp.py", inputs=2, options=[])

    assert backend == "cpp"
    assert worst(spec, kernel_fn) <= 0.55


@pytest.mark.skipif(not backends.available("cuda")[0], reason=backends.available("cuda")[1])
def test_the_cuda_kernel_compiles_for_every_dtype_without_a_gpu(folder):
    sizes = cuda.compile_only((folder / "swiglu_cuda.py").read_text(), archs=["sm_90"])

    assert set(sizes) == {("sm_90", "float32"), ("sm_90", "float16"), ("sm_90", "bfloat16")}
    assert min(sizes.values()) > 1000  # bytes; an empty module is smaller
