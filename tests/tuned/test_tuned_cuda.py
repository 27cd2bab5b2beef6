"""The tuned CUDA kernels compile for Hopper, without a GPU; with one, they are accepted."""

from __future__ import annotations

import pytest

from autokernel import backends, tuned
from autokernel.agents.constants import tunables
from autokernel.backends import cuda

OPERATIONS = ("cross_entropy", "reduce", "rmsnorm", "softmax")
AVAILABLE, WHY = backends.available("cuda")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_tuned_cuda_kernel_declares_its_operation_backend_and_constants(name):
    source = tuned.source(name, "cuda")

    assert backends.of(source) == "cuda"
    assert f'KERNEL_TYPE = "{name}"' in source
    assert {"THREAD_VECTORS", "BLOCK_SIZE", "STREAM"} <= {one.name for one in tunables(source)}


@pytest.mark.skipif(not AVAILABLE, reason=WHY)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_tuned_cuda_kernel_compiles_for_every_dtype_without_a_gpu(name):
    sizes = cuda.compile_only(tuned.source(name, "cuda"), archs=["sm_90"])

    assert set(sizes) == {("sm_90", "float32"), ("sm_90", "float16"), ("sm_90", "bfloat16")}
    assert min(sizes.values()) > 1000  # bytes; an empty module is smaller


@pytest.mark.gpu
@pytest.mark.thorough
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_tuned_cuda_kernel_is_accepted_on_the_gpu(name):
    from autokernel.evaluator import Evaluator

    with Evaluator(name, device="cuda") as evaluator:
        verdict = evaluator.verify(tuned.source(name, "cuda"))
    assert verdict.accepted, verdict.reason
