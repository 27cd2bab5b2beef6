"""Which calls of an exported kernel are the kernel's, and which PyTorch's."""

from __future__ import annotations

import itertools
import shutil
import warnings

import pytest
import torch

from autokernel import ops, starters
from autokernel.export import export_package
from tests.export.recorded import load, record

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled")

PASSED = ["M=16 N=256 float32", "M=32 N=256 float32 eps=0.01", "M=16 N=256 float16", "B=2 M=3 N=65 float32"]
RAISES = """
KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"

def kernel_fn(x, weight, eps=1e-6):
    raise ValueError("out of luck")
"""
WRONG_SHAPE = RAISES.replace('raise ValueError("out of luck")', "return x[:1]")
WIDE = RAISES.replace('raise ValueError("out of luck")', "return (x * 0 + 2).double()")
REPORTS_STRIDES = RAISES.replace(
    'raise ValueError("out of luck")', "return torch.tensor(x.stride()).float().repeat(16, 128)"
).replace("BACKEND", "import torch\nBACKEND")
NAMES = (f"guarded_{number}" for number in itertools.count())


def exported(tmp_path, source=None, passed=PASSED, **options):
    source = starters.source("rmsnorm", "cpp") if source is None else source
    run = record(tmp_path / "run", source, operation="rmsnorm", backend="cpp", passed=passed)
    name = next(NAMES)
    return load(export_package(run, name, tmp_path / name, **options), name)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("guard"))


@pytest.fixture
def call(package):
    """Calls the exported operation; returns what ran: "kernel", or the reason for PyTorch."""
    generator = torch.Generator().manual_seed(0)

    def run(*shape, dtype=torch.float32, eps=1e-6, change=lambda x: x):
        x = change(torch.randn(shape, generator=generator).to(dtype))
        weight = torch.rand(shape[-1], generator=generator).to(dtype)
        before = dict(package.report())
        output = package.rmsnorm(x, weight, eps)
        right = package.original(x.detach().float(), weight.float(), eps)
        assert (output.shape, output.dtype) == (x.shape, dtype)
        torch.testing.assert_close(
            output.detach().float(), right, atol=2e-3 if dtype is torch.float16 else 1e-5, rtol=0
        )
        changed = [name for name, count in package.report().items() if count != before.get(name, 0)]
        assert len(changed) == 1
        return changed[0]

    return run


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((16, 256), {}),
        ((16, 256), {"dtype": torch.float16}),
        ((4, 4, 256), {}),
        ((2, 2, 4, 256), {}),
        ((6, 65), {}),
        ((2, 3, 65), {}),
        ((32, 256), {"eps": 0.005}),
        ((16, 256), {"change": lambda x: x.t().contiguous().t()}),
        ((16, 256), {"change": lambda x: torch.cat((x.flatten()[:1], x.flatten()))[1:].view(16, 256)}),
    ],
)
def test_what_was_verified_is_the_kernels(call, shape, settings):
    assert call(*shape, **settings) == "kernel"


@pytest.mark.parametrize(
    ("shape", "settings", "reason"),
    [
        ((17, 256), {}, "x[0]=17 x[1]=256 weight[0]=256 float32 float32 was not verified"),
        ((256,), {}, "x[0]=1 x[1]=256 weight[0]=256 float32 float32 was not verified"),
        ((32, 256), {"dtype": torch.float16}, "x[0]=32 x[1]=256 weight[0]=256 float16 float16 was not verified"),
        ((16, 256), {"eps": 0.5}, "eps=0.5 was not verified"),
        ((16, 256), {"change": lambda x: x.requires_grad_()}, "gradients are required, or autocast is on"),
    ],
)
def test_everything_else_is_pytorchs_with_the_reason(call, shape, settings, reason):
    assert call(*shape, **settings) == f"PyTorch: {reason}"


def test_a_dtype_that_was_not_verified_is_pytorchs(package):
    package.rmsnorm(torch.ones(16, 256, dtype=torch.bfloat16), torch.ones(256, dtype=torch.bfloat16))

    assert package.report()["PyTorch: bfloat16 bfloat16, eps=1e-06 was not verified"] == 1


def test_gradients_flow_through_pytorch(package):
    x = torch.randn(16, 256, requires_grad=True)

    package.rmsnorm(x, torch.ones(256)).sum().backward()

    assert x.grad is not None and bool(x.grad.abs().sum() > 0)
    with torch.no_grad():
        before = package.report()["kernel"]
        package.rmsnorm(x, torch.ones(256))
        assert package.report()["kernel"] == before + 1


def test_autocast_and_transforms_leave_the_call_to_pytorch(package):
    x, weight = torch.randn(4, 16, 256), torch.ones(256)
    before = package.report().get("kernel", 0)

    with torch.autocast("cpu"):
        package.rmsnorm(x[0], weight)
    mapped = torch.func.vmap(package.rmsnorm, in_dims=(0, None))(x, weight)

    torch.testing.assert_close(mapped, package.original(x, weight))
    assert package.report().get("kernel", 0) == before


def test_range_admits_sizes_between_verified_ones_and_no_others(tmp_path):
    package = exported(tmp_path, passed=["M=16 N=256 float32", "M=32 N=512 float32"], admit="range")
    for shape in ((20, 300), (16, 512), (15, 256), (32, 513)):
        package.rmsnorm(torch.randn(shape), torch.ones(shape[1]))

    assert package.report() == {
        "kernel": 2,
        "PyTorch: x[0]=15 x[1]=256 weight[0]=256 float32 float32 was not verified": 1,
        "PyTorch: x[0]=32 x[1]=513 weight[0]=513 float32 float32 was not verified": 1,
    }


@pytest.mark.parametrize(("source", "words"), [(RAISES, "out of luck"), (WRONG_SHAPE, r"has shape \(1, 256\) instead")])
def test_a_kernel_that_fails_gives_way_once_and_for_all(tmp_path, source, words):
    package = exported(tmp_path, source)
    x, weight = torch.randn(16, 256), torch.ones(256)

    with pytest.warns(RuntimeWarning, match=words):
        first = package.rmsnorm(x, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = package.rmsnorm(x, weight)

    assert torch.equal(first, package.original(x, weight)) and torch.equal(first, second)
    assert package.report() == {"PyTorch: the kernel raised ValueError": 2}


def test_a_kernel_that_cannot_be_loaded_gives_way(tmp_path):
    package = exported(tmp_path, "BACKEND = 'cpp'\nraise ImportError('no compiler')\n")

    with pytest.warns(RuntimeWarning, match="cannot be loaded .*no compiler; PyTorch runs instead"):
        package.rmsnorm(torch.randn(16, 256), torch.ones(256))


@pytest.mark.parametrize(
    ("labels", "strides"),
    [(["M=16 N=256 float32"], (256, 1)), (["M=16 N=256 float32", "M=16 N=256 float32 transposed"], (1, 16))],
)
def test_a_layout_is_the_kernels_only_if_it_was_verified(tmp_path, labels, strides):
    package = exported(tmp_path, REPORTS_STRIDES, labels)

    output = package.rmsnorm(torch.randn(256, 16).t(), torch.ones(256))

    assert tuple(output[0, :2].int().tolist()) == strides
    assert package.report() == {"kernel": 1}


def test_a_result_has_pytorchs_dtype(tmp_path):
    package = exported(tmp_path, WIDE)

    output = package.rmsnorm(torch.randn(16, 256), torch.ones(256))

    assert output.dtype is torch.float32 and bool((output == 2).all())


def exported_operation(tmp_path, operation):
    """A package of the operation's starter, verified on its first case, and inputs of that case."""
    spec = ops.get(operation)
    dtype = spec.usual_dtype(gpu=False)
    label = " ".join([*(f"{name}={size}" for name, size in spec.shapes[0].items()), dtype])
    run = record(
        tmp_path / "run", starters.source(operation, "cpp"), operation=operation, backend="cpp", passed=[label]
    )
    name = next(NAMES)
    module = load(export_package(run, name, tmp_path / name, torch_op=True), name)
    inputs = spec.make_inputs(spec.shapes[0], ops.spec.dtype_named(dtype), torch.Generator().manual_seed(0))
    return spec, module, inputs


@pytest.mark.parametrize("operation", ops.names())
def test_the_pytorch_code_of_each_operation_goes_with_it(tmp_path, operation):
    spec, module, inputs = exported_operation(tmp_path, operation)
    function = spec.baseline or spec.reference

    assert torch.equal(module.original(*inputs), function(*inputs))


@pytest.mark.parametrize(
    "operation",
    [
        "cross_entropy",
        "fused_mlp",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ops.names()
            if name not in ("cross_entropy", "fused_mlp")
        ),
    ],
)
def test_the_starter_of_each_operation_runs_from_its_package(tmp_path, operation):
    _spec, module, inputs = exported_operation(tmp_path, operation)

    output = getattr(module, operation)(*inputs)

    right = module.original(*inputs)
    assert module.report() == {"kernel": 1}
    assert (output.shape, output.dtype) == (right.shape, right.dtype)
    torch.testing.assert_close(output.float(), right.float(), atol=2e-2, rtol=2e-2)
