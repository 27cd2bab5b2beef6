"""Compiling CUDA C++ without a GPU: errors with lines, missing parts, the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autokernel import backends
from autokernel.backends import cuda, nvrtc
from autokernel.errors import BackendUnavailable, CompileError, UsageError

AVAILABLE, WHY = backends.available("cuda")
pytestmark = pytest.mark.skipif(not AVAILABLE, reason=WHY)

SCALE = """
template <typename T> __global__ void scale(const T* x, T* y, int64_t n) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = from_float<T>(FACTOR * to_float(x[i]));
}
"""


def scale_module(source: str = SCALE) -> cuda.CudaModule:
    module = cuda.compile(source, defines={"FACTOR": 2.0})
    module.kernel("scale<T>", "T*", "T*", "int64")
    return module


def test_a_compile_error_gives_the_line_of_cuda_src() -> None:
    module = scale_module(SCALE.replace("to_float(x[i])", "to_flout(x[i])"))

    with pytest.raises(CompileError, match=r"line 4: identifier \"to_flout\" is undefined") as caught:
        module.cubin("sm_90", torch.float16)

    assert len(str(caught.value).splitlines()) < 8


def test_a_kernel_that_the_text_does_not_have_is_named() -> None:
    module = cuda.compile("__global__ void other() {}")
    module.kernel("scale", "float32*")

    with pytest.raises(CompileError, match='identifier "scale" is undefined'):
        module.cubin("sm_90", torch.float32)


def test_an_architecture_that_nvrtc_does_not_know_says_which_it_knows() -> None:
    with pytest.raises(BackendUnavailable, match=r"does not compile for sm_999; it knows .*sm_90"):
        scale_module().cubin("sm_999", torch.float32)


def test_T_without_a_tensor_to_take_it_from_is_refused() -> None:
    with pytest.raises(UsageError, match="T stands for the type of the T"):
        cuda.compile(SCALE).kernel("scale<T>", "float32*", "int64")


def test_a_text_compiled_before_is_read_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = scale_module().cubin("sm_80", torch.bfloat16)

    def not_again(*_arguments: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(nvrtc, "_run", not_again)
    assert scale_module().cubin("sm_80", torch.bfloat16) == first


def test_another_constant_is_another_cubin() -> None:
    other = cuda.compile(SCALE, defines={"FACTOR": 3.0})
    other.kernel("scale<T>", "T*", "T*", "int64")

    assert other.cubin("sm_80", torch.float32).code != scale_module().cubin("sm_80", torch.float32).code


def test_a_damaged_cache_entry_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOKERNEL_CACHE_DIR", str(tmp_path))
    whole = scale_module().cubin("sm_80", torch.float32)
    (entry,) = tmp_path.glob("cuda-*.cubin")
    entry.write_bytes(b"{nothing")

    assert scale_module().cubin("sm_80", torch.float32) == whole


def test_missing_headers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.include_dirs.cache_clear()
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    with pytest.raises(BackendUnavailable, match="pip install nvidia-cuda-runtime"):
        nvrtc.include_dirs()


def test_a_launch_on_a_cpu_tensor_is_refused_in_words() -> None:
    kernel = cuda.compile(SCALE, defines={"FACTOR": 2.0}).kernel("scale<T>", "T*", "T*", "int64")
    x = torch.ones(4)

    with pytest.raises(ValueError, match=r"argument 0 \(T\*\) takes a tensor on cuda, got one on cpu"):
        kernel[1, 32](x, x, 4)


def test_the_headers_conversions_compile_for_every_dtype_with_tensor_core_headers() -> None:
    module = cuda.compile("#include <mma.h>\n" + SCALE, defines={"FACTOR": 1.0})
    module.kernel("scale<T>", "T*", "T*", "int64")

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert module.cubin("sm_90a", dtype).code.startswith(b"\x7fELF")
