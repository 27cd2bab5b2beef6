"""Every CUDA starter compiles for Ampere and Hopper; no GPU is needed for that."""

from __future__ import annotations

import pytest

from autokernel import backends, ops, starters
from autokernel.backends import cuda

OPERATIONS = [name for name in ops.names() if "cuda" in starters.backends(name)]
AVAILABLE, WHY = backends.available("cuda")


def test_every_operation_has_a_cuda_starter() -> None:
    assert tuple(OPERATIONS) == ops.names()


@pytest.mark.skipif(not AVAILABLE, reason=WHY)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cuda_starter_compiles_for_every_dtype_without_a_gpu(name: str, arch: str) -> None:
    sizes = cuda.compile_only(starters.source(name, "cuda"), archs=[arch])

    assert set(sizes) == {(arch, "float32"), (arch, "float16"), (arch, "bfloat16")}
    assert min(sizes.values()) > 1000  # bytes; an empty module is smaller


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cuda_starter_declares_its_operation_and_backend(name: str) -> None:
    source = starters.source(name, "cuda")

    assert backends.of(source) == "cuda"
    assert f'KERNEL_TYPE = "{name}"' in source
    assert "CUDA_SRC = " in source
