"""Exported Triton and CUDA kernels on a device: the kernel runs where it was verified, also in graphs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from autokernel import starters
from autokernel.export import export_package
from autokernel.hardware import detect
from tests.export.recorded import load, record

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_an_exported_kernel_runs_on_the_device_on_which_it_was_verified(backend, tmp_path):
    run = record(
        tmp_path / "run", starters.source("softmax", backend), operation="softmax", backend=backend,
        passed=["M=512 N=4096 float16", "B=2 M=3 N=65 float16"], device="cuda", device_name=str(detect("cuda")),
    )  # fmt: skip
    name = f"softmax_in_{backend}"
    package = load(export_package(run, name, tmp_path / "project", torch_op=True), name)
    x = torch.randn(512, 4096, device="cuda", dtype=torch.float16)
    compiled = torch.compile(lambda x: package.softmax(x * 2), fullgraph=True, backend="aot_eager")

    torch.testing.assert_close(package.softmax(x), torch.softmax(x, -1), atol=1e-3, rtol=1e-2)
    torch.testing.assert_close(
        package.softmax(x.view(2, 256, 4096)), torch.softmax(x, -1).view(2, 256, 4096), atol=1e-3, rtol=1e-2
    )
    torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1), atol=1e-3, rtol=1e-2)
    package.softmax(x[:511])

    assert package.report() == {"kernel": 3, "PyTorch: x[0]=511 x[1]=4096 float16 was not verified": 1}


def test_a_kernel_of_another_device_leaves_the_call_to_pytorch(tmp_path):
    other = dataclasses.replace(detect("cuda"), name="NVIDIA Other")
    run = record(
        tmp_path / "run", starters.source("softmax", "triton"), operation="softmax", backend="triton",
        passed=["M=512 N=4096 float16"], device="cuda", device_name=str(other),
    )  # fmt: skip
    package = load(export_package(run, "softmax_of_another", tmp_path / "project"), "softmax_of_another")

    package.softmax(torch.randn(512, 4096, device="cuda", dtype=torch.float16))

    assert package.report() == {"PyTorch: it was verified on NVIDIA Other": 1}
