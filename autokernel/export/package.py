"""A kept kernel as an installable Python package."""

from __future__ import annotations

import os
from pathlib import Path

from autokernel.export.card import card
from autokernel.export.evidence import facts_of
from autokernel.export.licence import LICENCE, licence_text
from autokernel.export.modules import example_of, module_files
from autokernel.export.names import module_name, name_from, write_project
from autokernel.export.selection import KeptKernel, kept_kernel
from autokernel.runfolder import RunFolder
from autokernel.target import toml_value

__all__ = ["export_package", "requirements"]

_PROJECT = """[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = {name}
version = "1.0.0"
description = {description}
readme = "README.md"
requires-python = ">=3.10"
license = {licence}
license-files = ["LICENSE"]
dependencies = {dependencies}

[tool.hatch.build.targets.wheel]
packages = [{package}]
"""


def export_package(
    run: str | os.PathLike[str] | RunFolder,
    name: str | None = None,
    output: str | os.PathLike[str] | None = None,
    *,
    experiment: int | None = None,
    torch_op: bool = False,
    admit: str = "verified",
) -> Path:
    """Write a kept kernel as a Python package that ``pip install`` takes, and return its folder.

    Args:
        run: A run folder or an archive.
        name: Of the package; made from the run's name when None.
        output: The new folder; one of the package's name, here, when None.
        experiment: An experiment whose kernel was kept; that of the best when None.
        torch_op: Register the kernel as ``torch.ops.<name>.<operation>``.
        admit: ``verified``: the kernel runs on sizes that passed; ``range``: also on sizes between them.

    Raises:
        UsageError: The kernel was not kept, needs what a package cannot carry, or the name or the folder is taken.
        RunDamaged: The run's record is incomplete.
        RunUnwritable: The folder cannot be written.
    """
    kept = kept_kernel(run, experiment)
    package = module_name(name_from(kept.run.path.name) if name is None else name)
    facts = facts_of(kept, admit)
    files = module_files(kept, facts, package if torch_op else None)
    needs = requirements(kept)
    description = f"{kept.spec.name}: a {kept.backend} kernel that was verified and timed on {kept.device_name}"
    project = _PROJECT.format(
        name=toml_value(package), description=toml_value(description), licence=toml_value(LICENCE),
        dependencies=toml_value(needs), package=toml_value(package),
    )  # fmt: skip
    usage = f"```\npip install .\n```\n\n{example_of(kept.spec, f'from {package} import {kept.spec.name}')}"
    if torch_op:
        usage += f"\n\nThe operator is `torch.ops.{package}.{kept.spec.name}`; importing `{package}` registers it."
    contents = {
        "pyproject.toml": project,
        "README.md": card(kept, facts, package, usage),
        "LICENSE": licence_text(),
        "verified/kernel.py": kept.source,
        **{f"{package}/{path}": text for path, text in files.items()},
    }
    return write_project(Path(package if output is None else output), contents)


def requirements(kept: KeptKernel) -> list[str]:
    """What the package needs to run its kernel, as pip takes it."""
    more = {
        "triton": ["triton>=3.2"],
        "cuda": ["cuda-bindings>=12.8", "nvidia-cuda-nvrtc>=13.0", "nvidia-cuda-runtime>=13.0",
                 "nvidia-cuda-crt>=13.0", "nvidia-cuda-cccl>=13.0"],
        "cpp": [],
    }  # fmt: skip
    return ["torch>=2.6", *more[kept.backend], *(["numpy>=1.26"] if kept.interpreted else [])]
