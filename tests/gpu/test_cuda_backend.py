"""The CUDA backend on a device: launches, streams, graphs, shared memory, every starter against the golden values."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from autokernel import ops, starters
from autokernel.backends import cuda
from autokernel.backends.cuda_driver import CudaError
from autokernel.ops.spec import dtype_named
from autokernel.verifier.golden import compare, golden
from autokernel.verifier.layouts import lay_out
from autokernel.verifier.plan import plan

pytestmark = pytest.mark.gpu

SOURCE = r"""
template <typename T> __global__ void scale(const T* x, T* y, int64_t n, float factor) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = from_float<T>(factor * to_float(x[i]));
}
__global__ void reverse(const int64_t* x, int64_t* y, int n) {
    extern __shared__ int64_t buffer[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) buffer[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = buffer[n - 1 - i];
}
"""
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder: Path = tmp_path_factory.getbasetemp() / "compiled"
    monkeypatch.setenv("AUTOKERNEL_CACHE_DIR", str(folder))


def scale_kernel() -> cuda.CudaKernel:
    return cuda.compile(SOURCE).kernel("scale<T>", "T*", "T*", "int64", "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 127, 4097])
def test_a_kernel_writes_the_right_values(dtype: torch.dtype, n: int) -> None:
    x = torch.randn(n, device="cuda").to(dtype)
    y = torch.empty_like(x)

    scale_kernel()[-(-n // 256), 256](x, y, n, 3.0)

    assert torch.equal(y, (x.float() * 3.0).to(dtype))


def test_a_kernel_runs_on_the_current_stream() -> None:
    kernel = scale_kernel()
    x, y = torch.ones(1, device="cuda"), torch.zeros(1, device="cuda")
    kernel[1, 32](x, y, 1, 1.0)  # compiled and loaded
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # cycles; about 0.1 s
        kernel[1, 32](x, y, 1, 2.0)
        waiting = not stream.query()
    torch.cuda.current_stream().synchronize()
    stream.synchronize()

    assert waiting
    assert y.item() == 2.0


def test_a_launch_can_be_captured_in_a_graph_and_replayed_on_new_values() -> None:
    kernel = scale_kernel()
    x, y = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    kernel[1, 128](x, y, 100, 2.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[1, 128](x, y, 100, 5.0)
    x.fill_(7.0)

    graph.replay()
    torch.cuda.synchronize()

    assert torch.equal(y, torch.full_like(y, 35.0))


def test_more_than_48_kb_of_shared_memory_is_opted_in_to() -> None:
    n = 8000  # 64 kB
    reverse = cuda.compile(SOURCE).kernel("reverse", "int64*", "int64*", "int32")
    x = torch.arange(n, device="cuda")
    y = torch.empty_like(x)

    reverse[1, 1024, 8 * n](x, y, n)

    assert torch.equal(y, x.flip(0))


def test_more_shared_memory_than_there_is_says_how_much_there_is() -> None:
    reverse = cuda.compile(SOURCE).kernel("reverse", "int64*", "int64*", "int32")
    x = torch.arange(4, device="cuda")

    with pytest.raises(ValueError, match="bytes of dynamic shared memory, but a block on this device has"):
        reverse[1, 32, 10**6](x, torch.empty_like(x), 4)


def test_a_block_that_is_too_large_is_an_error_in_words() -> None:
    x = torch.ones(4, device="cuda")

    with pytest.raises(CudaError, match=r"block \(2048, 1, 1\).*CUDA_ERROR_INVALID_VALUE"):
        scale_kernel()[1, 2048](x, torch.empty_like(x), 4, 1.0)


def test_a_kernel_can_be_launched_from_another_thread() -> None:
    import threading

    kernel = scale_kernel()
    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            kernel[1, 32](x, y, 4, 2.0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()

    assert not failures
    assert y.tolist() == [2.0] * 4


def test_a_launch_takes_little_time_of_the_caller() -> None:
    launch = scale_kernel()[1, 32]
    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    times = []
    for _round in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _call in range(200):
            launch(x, y, 4, 2.0)
        times.append((time.perf_counter() - start) / 200)
    print(f"launch: {min(times) * 1e6:.2f} us")

    assert min(times) < 20e-6  # 7 to 10 us were measured on an otherwise idle H200 machine


@pytest.mark.parametrize("name", [name for name in ops.names() if "cuda" in starters.backends(name)])
def test_a_cuda_starter_agrees_with_the_golden_values_in_every_case(name: str) -> None:
    spec = ops.get(name)
    module: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(starters.source(name, "cuda"), "kernel.py", "exec"), module)
    wrong = []
    for case in [case for stage in plan(spec).values() for case in stage]:
        generator = torch.Generator(device="cuda").manual_seed(1)
        inputs = spec.make_inputs(case.shape, dtype_named(case.dtype), generator)
        if case.fill != "normal":
            assert spec.fills is not None
            inputs = spec.fills[case.fill](inputs, case.shape, generator)
        inputs = lay_out(inputs, case.layout, spec.strided_inputs)
        comparison = compare(module["kernel_fn"](*inputs, **case.options), golden(spec, case, inputs))
        if comparison.mismatched:
            wrong.append(f"{case.label}: {comparison}")

    assert not wrong, "\n".join(wrong)
