"""An exported project of Hugging Face's `kernels`, loaded by that package."""

from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch

from autokernel import starters
from autokernel.export import export_hf
from tests.export.recorded import record

kernels = pytest.importorskip("kernels", reason="the package kernels is not installed")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    run = record(
        folder / "rmsnorm-1", starters.source("rmsnorm", "cpp"), operation="rmsnorm", backend="cpp",
        passed=["M=16 N=256 float32", "M=16 N=256 float32 eps=0.01"], skipped=["M=66000 N=4 float32"],
        timed="M=64 N=256 float32",
    )  # fmt: skip
    return export_hf(run, "fast-norm", folder / "fast-norm", torch_op=True)


def test_the_built_package_is_loaded_and_its_kernel_answers(project):
    module = kernels.get_local_kernel(project)
    x, weight = torch.randn(16, 256), torch.rand(256)

    output = module.rmsnorm(x, weight)

    torch.testing.assert_close(output, module.original(x, weight))
    assert module.report() == {"kernel": 1}
    namespace = module.__name__
    assert namespace.startswith("_fast_norm_")
    torch.testing.assert_close(getattr(torch.ops, namespace).rmsnorm(x, weight), output)


def test_build_file_and_metadata_are_what_the_package_reads(project):
    from kernels._rust import Build, Digest, DigestAlgorithm

    variant = project / "build" / "torch-universal"
    metadata = kernels.Metadata.read_from_file(variant / "metadata.json")
    for cache in list(variant.rglob("__pycache__")):  # of the tests before
        shutil.rmtree(cache)

    assert [str(one).lower() for one in Build.open(project).general.backends] == ["cpu"]
    assert (str(metadata.name), metadata.version, metadata.license) == ("fast-norm", 1, "MIT")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))


def test_older_versions_find_the_same_module_in_a_folder_of_its_name(project):
    file = project / "build" / "torch-universal" / "fast_norm" / "__init__.py"
    spec = importlib.util.spec_from_file_location("fast_norm", file)
    module = importlib.util.module_from_spec(spec)

    spec.loader.exec_module(module)

    assert module.rmsnorm is kernels.get_local_kernel(project).rmsnorm


def test_source_and_build_are_the_same_files(project):
    source, build = project / "torch-ext" / "fast_norm", project / "build" / "torch-universal"
    names = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in (".py", ".json"))

    assert "_support/guard.py" in names and "kernel.py" in names
    for name in names:
        assert (build / name).read_text() == (source / name).read_text(), name


def test_the_card_carries_the_evidence(project):
    card = (project / "README.md").read_text()

    assert card.startswith("---\nlibrary_name: kernels\nlicense: mit\ntags:\n- kernel\n")
    for words in (
        "`rmsnorm` as a C++ kernel",
        "on Test CPU (x86_64, 2 cores, 4 GiB)",
        "Options that are numbers: `eps` from 1e-06 to 0.01.",
        "| smoke | pass | 2 | 1 |",
        "| float32 | M=16 N=256 | eps=0.01 |",
        "| M=66000 N=4 float32 | too large \\| here |",
        "| M=64 N=256 float32 | wall clock | 50.00 (49.00 to 51.00) | 100.00 (99.00 to 101.00) |  "
        "| 2.000 (1.750 to 2.250) |  |",
        "| run | `rmsnorm-1` |",
        "| hash of the judging code | `0123456789abcdef` |",
        "autokernel verify verified/kernel.py",
    ):
        assert words in card, card
