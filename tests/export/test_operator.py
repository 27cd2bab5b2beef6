"""An exported kernel as an operator of PyTorch."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

from autokernel import starters
from autokernel.export import export_package
from tests.export.recorded import load, record

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operator")
    run = record(
        folder / "rmsnorm-op-1", starters.source("rmsnorm", "cpp"), operation="rmsnorm", backend="cpp",
        passed=["M=16 N=256 float32"],
    )  # fmt: skip
    return load(export_package(run, output=folder / "project", torch_op=True), "rmsnorm_op_1")


class Block(nn.Module):
    def __init__(self, norm) -> None:
        super().__init__()
        self.norm = norm
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 256))

    def forward(self, x):
        return self.norm(x * 2, self.weight) + 1


def counted(package, call):
    """The outcome of a call, and how often the kernel ran in it."""
    before = package.report().get("kernel", 0)
    return call(), package.report().get("kernel", 0) - before


def test_the_operator_passes_pytorchs_own_checks(package):
    operator = torch.ops.rmsnorm_op_1.rmsnorm

    torch.library.opcheck(operator, (torch.randn(16, 256), torch.rand(256)))
    torch.library.opcheck(operator, (torch.randn(3, 5, 256), torch.rand(256), 1e-3))


def test_compile_keeps_one_graph_and_the_kernel_runs_in_it(package):
    block, x = Block(package.rmsnorm), torch.randn(16, 256)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")

    with torch.no_grad():
        output, kernel_calls = counted(package, lambda: compiled(x))

    assert kernel_calls == 1
    torch.testing.assert_close(output, Block(package.original)(x).detach())


def test_compiled_training_runs_pytorch_and_has_gradients(package):
    block = Block(package.rmsnorm)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")

    _loss, kernel_calls = counted(package, lambda: compiled(torch.randn(16, 256)).square().sum().backward())

    assert kernel_calls == 0
    assert block.weight.grad is not None and bool(block.weight.grad.abs().sum() > 0)


def test_export_holds_the_operator_for_any_number_of_rows(package):
    block = Block(package.rmsnorm).requires_grad_(False)
    rows = torch.export.Dim("rows", min=2)

    program = torch.export.export(block, (torch.randn(16, 256),), dynamic_shapes=({0: rows},))

    assert torch.ops.rmsnorm_op_1.rmsnorm.default in [node.target for node in program.graph.nodes]
    for n_rows, kernel_calls in ((16, 1), (5, 0)):
        x = torch.randn(n_rows, 256)
        output, calls = counted(package, lambda x=x: program.module()(x))
        assert calls == kernel_calls
        torch.testing.assert_close(output, Block(package.original)(x).detach())


def test_without_the_operator_a_compiled_model_runs_the_kernel_between_two_graphs(tmp_path):
    run = record(
        tmp_path / "run", starters.source("rmsnorm", "cpp"), operation="rmsnorm", backend="cpp",
        passed=["M=16 N=256 float32"],
    )  # fmt: skip
    package = load(export_package(run, "without_operator", tmp_path / "project"), "without_operator")
    compiled, x = torch.compile(Block(package.rmsnorm), backend="aot_eager"), torch.randn(16, 256)

    with torch.no_grad():
        output = compiled(x)

    assert package.report() == {"kernel": 1}
    torch.testing.assert_close(output, Block(package.original)(x).detach())


def test_an_option_without_a_value_keeps_its_type(tmp_path):
    run = record(
        tmp_path / "run", starters.source("flash_attention", "cpp"), operation="flash_attention", backend="cpp",
        passed=["B=1 H=2 S=32 D=32 float32", "B=1 H=2 S=32 D=32 float32 causal=False sm_scale=0.05"],
    )  # fmt: skip
    package = load(export_package(run, "attention_op", tmp_path / "project", torch_op=True), "attention_op")
    schema = str(torch.ops.attention_op.flash_attention.default._schema)
    inputs = [torch.randn(1, 2, 32, 32) for _ in range(3)]

    assert schema.endswith("(Tensor Q, Tensor K, Tensor V, bool causal=True, float? sm_scale=None) -> Tensor")
    for options in ({}, {"causal": False, "sm_scale": 0.05}):
        torch.testing.assert_close(package.flash_attention(*inputs, **options), package.original(*inputs, **options))
    assert package.report() == {"kernel": 2}


@pytest.mark.thorough
def test_inductor_keeps_the_operator(package):
    block, x = Block(package.rmsnorm), torch.randn(16, 256)
    compiled = torch.compile(block, fullgraph=True)

    with torch.no_grad():
        output, kernel_calls = counted(package, lambda: compiled(x))

    assert kernel_calls == 1
    torch.testing.assert_close(output, Block(package.original)(x).detach())
