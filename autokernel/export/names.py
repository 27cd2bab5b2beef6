"""Names of exported packages, and the folders they are written to."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from autokernel import files
from autokernel.errors import UsageError

__all__ = ["hub_name", "module_name", "name_from", "write_project"]

_HUB = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_MODULE = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = frozenset(("autokernel", "kernels", "numpy", "torch", "triton"))


def module_name(name: str) -> str:
    """Return ``name`` if a Python package may be called that.

    Raises:
        UsageError: It may not; the message says why.
    """
    if not _MODULE.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is no name for a package; use lower-case letters, digits and _, a letter first")
    if name in _TAKEN or name in sys.stdlib_module_names:
        raise UsageError(f"a package {name!r} would hide another of that name; choose another, such as fast_{name}")
    return name


def hub_name(name: str) -> str:
    """Return ``name`` if a project of Hugging Face's `kernels` may be called that.

    Raises:
        UsageError: It may not; the message says why.
    """
    if not _HUB.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a project of Hugging Face's kernels; use two or more lower-case letters, digits "
            "and -, a letter first and no - last, without the owner's name"
        )
    module_name(name.replace("-", "_"))
    return name


def name_from(run: str) -> str:
    """A package's name made from a run's.

    >>> name_from("rmsnorm-1")
    'rmsnorm_1'
    """
    name = re.sub(r"\W", "_", run.lower(), flags=re.ASCII)
    return name if name[:1].isalpha() else f"kernel_{name}"


def write_project(folder: Path, contents: Mapping[str, str]) -> Path:
    """Write files, by path, into a folder that is new or empty, and return it.

    Raises:
        UsageError: The folder holds something already.
        RunUnwritable: It cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already and is not empty; name a new folder with --output")
    with files.writable(folder):
        for name, text in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return folder
