"""Plant a fault in a kernel that is right: those of ``tests/kernels``, changed in one place or wrapped."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

import pytest

__all__ = ["at_import", "changed", "needs_compiler", "right", "wrapped"]

_KERNELS = Path(__file__).parent / "kernels"

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled")


def right(name: str, backend: str = "cpp") -> str:
    """The text of a right kernel for the operation ``name``."""
    return (_KERNELS / f"{name}_{backend}.py").read_text()


def changed(name: str, *changes: tuple[str, str], backend: str = "cpp") -> str:
    """The kernel of ``name`` with each (old, new) text replaced; old must occur."""
    source = right(name, backend)
    for old, new in changes:
        assert old in source, f"the kernel of {name} does not hold {old!r}"
        source = source.replace(old, new)
    return source


def wrapped(name: str, body: str, before: str = "", backend: str = "cpp") -> str:
    """The kernel of ``name`` under a ``kernel_fn`` of its own, in which ``right`` is the old one.

    Args:
        name: The operation.
        body: Statements of the new ``kernel_fn(*inputs, **options)``.
        before: Statements at the module's level.
        backend: ``cpp`` or ``triton``.
    """
    return (
        right(name, backend)
        + "\n\nright = kernel_fn\n"
        + textwrap.dedent(before)
        + "\n\ndef kernel_fn(*inputs, **options):\n"
        + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        + "\n"
    )


def at_import(statements: str) -> str:
    """A kernel file that does something while it is imported, before the kernel of rmsnorm."""
    return textwrap.dedent(statements).strip("\n") + "\n\n" + right("rmsnorm", "triton")
