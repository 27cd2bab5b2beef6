"""What is not exported, and what is said about it."""

from __future__ import annotations

import pytest
import torch

from autokernel import starters
from autokernel.archive import write_archive
from autokernel.cli import main
from autokernel.errors import RunDamaged, UsageError
from autokernel.export import export_hf, export_package
from autokernel.runfolder import RunFolder
from tests.export.recorded import load, record
from tests.recorded_run import record_run

STARTER = starters.source("rmsnorm", "cpp")
SPEC = """
import torch
from autokernel.ops.rowwise import normal
from autokernel.ops.spec import KernelSpec

def inputs(shape, dtype, generator):
    return (normal((shape["N"],), dtype, generator),)

def doubled(x, scale=None):
    return x * TWO

TWO = 2
OURS = KernelSpec(name="ours", reference=doubled, make_inputs=inputs, shapes=[{"N": 8}])
NAMELESS = KernelSpec(name="nameless", reference=lambda x: x * 2, make_inputs=inputs, shapes=[{"N": 8}])

def borrowed(x):
    return normal((8,), x.dtype, torch.Generator()) * x

BORROWED = KernelSpec(name="borrowed", reference=borrowed, make_inputs=inputs, shapes=[{"N": 8}])
"""
KERNEL = 'BACKEND = "cpp"\n\ndef kernel_fn(x):\n    return x + x\n'


def recorded(tmp_path, source=STARTER, **settings):
    settings = {"operation": "rmsnorm", "passed": ["M=7 N=8 float32"], **settings}
    return record(tmp_path / "rmsnorm-1", source, backend="cpp", **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decision": "revert"}, r"experiment 0 of rmsnorm-1 was not kept \(not faster\); none was kept so far"),
        ({"decision": "revert", "accepted": False}, "experiment 0 of rmsnorm-1 failed verification"),
        ({"decision": ""}, "experiment 0 of rmsnorm-1 is not decided"),
    ],
)
def test_only_a_kept_kernel_is_exported(tmp_path, settings, words):
    run = recorded(tmp_path, **settings)

    with pytest.raises(UsageError, match=words):
        export_package(run, "fast", tmp_path / "project", experiment=0)
    with pytest.raises(UsageError, match=r"rmsnorm-1 .*"):
        export_package(run, "fast", tmp_path / "project")
    assert not (tmp_path / "project").exists()


def test_the_numbers_that_could_be_exported_are_named(tmp_path):
    run = record_run(tmp_path / "rmsnorm-1")

    with pytest.raises(UsageError, match="experiment 2 of rmsnorm-1 was not kept .*; kept were: 0, 1"):
        export_hf(run, "fast-norm", tmp_path / "project", experiment=2)
    with pytest.raises(UsageError, match="has no experiment 9"):
        export_hf(run, "fast-norm", tmp_path / "project", experiment=9)


def test_a_text_that_is_not_the_judged_one_is_refused(tmp_path):
    archive = write_archive(RunFolder(recorded(tmp_path)), tmp_path / "archive")
    assert (export_package(archive, "fast", tmp_path / "project") / "verified" / "kernel.py").read_text() == STARTER

    (archive / "kernels" / "0000.py").write_text(STARTER + "# changed\n")

    with pytest.raises(RunDamaged, match="not the one that was judged"):
        export_package(archive, "fast", tmp_path / "other")


def test_a_record_without_cases_says_where_no_kernel_may_run(tmp_path):
    with pytest.raises(RunDamaged, match="names no case that passed"):
        export_package(recorded(tmp_path, passed=[]), "fast", tmp_path / "project")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import numpy", "imports numpy; one that is exported may import torch, triton and the standard library"),
        ("from . import helper", "imports a module beside it"),
        ("from autokernel import ops", "imports autokernel, which a package cannot carry"),
        ("import autokernel.backends.cpp", "line 2: write from autokernel.backends import"),
        ("from  autokernel.backends import cpp", "with single spaces"),
    ],
)
def test_a_kernel_that_needs_more_than_a_package_carries_is_refused(tmp_path, line, words):
    run = recorded(tmp_path, f'BACKEND = "cpp"\n{line}\n\ndef kernel_fn(x, weight, eps=1e-6):\n    return x\n')

    with pytest.raises(UsageError, match=words):
        export_package(run, "fast", tmp_path / "project")


@pytest.mark.parametrize(
    ("operation", "torch_op", "words"),
    [
        ("nameless", False, "only a function at the top level of a file can be exported"),
        ("borrowed", False, "uses normal of autokernel.ops.rowwise, which a package cannot carry"),
        ("ours", True, "the option scale of ours is None"),
    ],
)
def test_pytorch_code_that_cannot_go_along_is_refused(tmp_path, operation, torch_op, words):
    (tmp_path / "my_op.py").write_text(SPEC)
    run = recorded(
        tmp_path, KERNEL, operation=operation, passed=["N=8 float32"], reference=f"{tmp_path / 'my_op.py'}:{operation}"
    )

    with pytest.raises(UsageError, match=words):
        export_package(run, "fast", tmp_path / "project", torch_op=torch_op)


def test_an_operation_of_ones_own_goes_along_with_what_its_file_defines(tmp_path):
    (tmp_path / "my_op.py").write_text(SPEC.replace("scale=None", "scale: float | None = None"))
    reference = f"{tmp_path / 'my_op.py'}:ours"
    run = recorded(tmp_path, KERNEL, operation="ours", passed=["N=8 float32"], reference=reference)

    package = load(export_package(run, "own_operation", tmp_path / "project", torch_op=True), "own_operation")

    assert package.original(torch.ones(3)).tolist() == [2, 2, 2]
    assert package.ours(torch.ones(8)).tolist() == [2] * 8
    assert package.report() == {"kernel": 1}
    assert "--spec FILE_WITH_ITS_SPEC" in (tmp_path / "project" / "README.md").read_text()


def test_a_kernel_keeps_its_text_whatever_its_line_ends(tmp_path):
    source = STARTER.replace("import torch\n", 'PAGE = "\x0c \u2028"\nimport torch\n', 1)
    run = recorded(tmp_path, source)

    project = export_package(run, "odd_lines", tmp_path / "project")

    packaged = (project / "odd_lines" / "kernel.py").read_text()
    assert packaged == source.replace("from autokernel.backends import", "from ._support import")


@pytest.mark.parametrize("name", ["torch", "json", "class", "Fast", "1st", "a-b", "../up", ""])
def test_a_package_needs_a_name_of_its_own(tmp_path, name):
    with pytest.raises(UsageError, match="package"):
        export_package(recorded(tmp_path), name)


@pytest.mark.parametrize("name", ["a", "a_b", "owner/name", "Fast-norm", "norm-", "torch", "-norm"])
def test_a_hub_project_needs_a_name_of_its_own(tmp_path, name):
    with pytest.raises(UsageError, match="package|project"):
        export_hf(recorded(tmp_path), name)


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine.txt").write_text("mine")

    with pytest.raises(UsageError, match="not empty; name a new folder with --output"):
        export_package(recorded(tmp_path), "fast", tmp_path / "project")

    assert [path.name for path in (tmp_path / "project").iterdir()] == ["mine.txt"]


def test_the_command_writes_what_it_is_told_to(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "runs")

    assert main(["export", "rmsnorm-1", "--torch-op"]) == 0
    assert main(["export", "rmsnorm-1", "--hf", "fast-norm", "--output", "hub"]) == 0

    assert "torch.library.custom_op" in (tmp_path / "rmsnorm_1" / "rmsnorm_1" / "__init__.py").read_text()
    assert (tmp_path / "hub" / "build.toml").is_file()
    assert "pip install rmsnorm_1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to write: --package NAME, --hf NAME, or --torch-op"),
        (["--package", "fast", "--hf", "fast"], "two kinds of project"),
        (["--package", "fast", "--admit", "all"], "admit is 'all'"),
    ],
)
def test_wrong_use_is_one_message_and_status_2(tmp_path, capsys, arguments, words):
    run = recorded(tmp_path)

    assert main(["export", str(run), *arguments]) == 2

    assert words in capsys.readouterr().err
