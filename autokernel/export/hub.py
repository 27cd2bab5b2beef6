"""A kept kernel as a project of Hugging Face's `kernels`: its source layout, and the package that is loaded.

The module is plain Python, which compiles the kernel when it first runs, so one build serves all devices: the
*universal* variant.  ``torch-ext`` is what `kernel-builder` builds from; ``build/torch-universal`` is what the
package `kernels` loads, with the module itself and, for its older versions, a folder of the module's name.

Source: Hugging Face, *Kernel requirements*, https://huggingface.co/docs/kernels/kernel-requirements, and kernels 0.17.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from autokernel.export.card import card
from autokernel.export.evidence import facts_of
from autokernel.export.licence import LICENCE, licence_text
from autokernel.export.modules import example_of, module_files
from autokernel.export.names import hub_name, write_project
from autokernel.export.package import requirements
from autokernel.export.selection import KeptKernel, kept_kernel
from autokernel.runfolder import RunFolder
from autokernel.target import toml_value

__all__ = ["export_hf"]

_VERSION = 1
_EDITION = 5
_VARIANT = "build/torch-universal"
_BUILD = """[general]
name = {name}
version = {version}
edition = {edition}
license = {licence}
backends = [{backend}]

[torch-noarch]
"""
_COMPATIBLE = '''"""The kernel for versions of `kernels` that look for it in a folder of its name."""

import importlib.util
import sys
from pathlib import Path

_NAME = "{identity}"
if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).parents[1] / "__init__.py")
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])
__all__ = sys.modules[_NAME].__all__
globals().update({{name: getattr(sys.modules[_NAME], name) for name in __all__}})
'''
_CARD_HEAD = """---
library_name: kernels
license: {licence}
tags:
- kernel
- {backend}
- autokernel
---

"""


def export_hf(
    run: str | os.PathLike[str] | RunFolder,
    name: str,
    output: str | os.PathLike[str] | None = None,
    *,
    experiment: int | None = None,
    torch_op: bool = False,
    admit: str = "verified",
) -> Path:
    """Write a kept kernel as a project of Hugging Face's `kernels`, built, with a model card; return its folder.

    Args:
        run: A run folder or an archive.
        name: Of the project, such as ``fast-rmsnorm``.
        output: The new folder; one of the project's name, here, when None.
        experiment: An experiment whose kernel was kept; that of the best when None.
        torch_op: Register the kernel as an operator, under a name that holds the text's hash.
        admit: ``verified``: the kernel runs on sizes that passed; ``range``: also on sizes between them.

    Raises:
        UsageError, RunDamaged, RunUnwritable: As `export_package`.
    """
    kept = kept_kernel(run, experiment)
    module = hub_name(name).replace("-", "_")
    facts = facts_of(kept, admit)
    identity = f"_{module}_{facts['provenance']['sha256'][:12]}"
    files = module_files(kept, facts, identity if torch_op else None)
    built = {**files, f"{module}/__init__.py": _COMPATIBLE.format(identity=identity)}
    build = _BUILD.format(
        name=toml_value(name), version=_VERSION, edition=_EDITION, licence=toml_value(LICENCE),
        backend=toml_value(kept.device_kind),
    )  # fmt: skip
    metadata = {
        "name": name,
        "id": identity,
        "version": _VERSION,
        "license": LICENCE,
        "python-depends": [],
        "backend": {"type": kept.device_kind},
        "digest": _digest(built),
    }
    contents = {
        "build.toml": build,
        "README.md": _CARD_HEAD.format(licence=LICENCE.lower(), backend=kept.backend)
        + card(kept, facts, name, _usage(kept, name)),
        "LICENSE": licence_text(),
        "verified/kernel.py": kept.source,
        **{f"torch-ext/{module}/{path}": text for path, text in files.items()},
        **{f"{_VARIANT}/{path}": text for path, text in built.items()},
        f"{_VARIANT}/metadata.json": json.dumps(metadata, indent=2) + "\n",
    }
    return write_project(Path(name if output is None else output), contents)


def _usage(kept: KeptKernel, name: str) -> str:
    needs = "`, `".join(requirements(kept))
    setup = f"from pathlib import Path\n\nfrom kernels import get_local_kernel\n\n{kept.spec.name} = get_local_kernel("
    setup += f'Path("{name}")).{kept.spec.name}  # published: get_kernel("OWNER/{name}", version={_VERSION})'
    return f"Needs `{needs}`; without them, PyTorch runs.\n\n{example_of(kept.spec, setup)}"


def _digest(files: Mapping[str, str]) -> dict[str, object]:
    hashes = {path: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for path, text in files.items()}
    return {"algorithm": "sha256", "files": dict(sorted(hashes.items()))}
