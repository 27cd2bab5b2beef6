"""Plant a fault in a kernel that is right: the starters, changed in one place or wrapped."""

from __future__ import annotations

import shutil
import textwrap

import pytest

from autokernel import starters

__all__ = ["at_import", "changed", "needs_compiler", "wrapped"]

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled")


def changed(name: str, *changes: tuple[str, str], backend: str = "cpp") -> str:
    """The starter of ``name`` with each (old, new) text replaced; old must occur."""
    source = starters.source(name, backend)
    for old, new in changes:
        assert old in source, f"the starter of {name} no longer holds {old!r}"
        source = source.replace(old, new)
    return source


def wrapped(name: str, body: str, before: str = "", backend: str = "cpp") -> str:
    """The starter of ``name`` under a ``kernel_fn`` of its own, in which ``right`` is the starter's.

    Args:
        name: The operation.
        body: Statements of the new ``kernel_fn(*inputs, **options)``.
        before: Statements at the module's level.
        backend: Which starter.
    """
    return (
        starters.source(name, backend)
        + "\n\nright = kernel_fn\n"
        + textwrap.dedent(before)
        + "\n\ndef kernel_fn(*inputs, **options):\n"
        + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        + "\n"
    )


def at_import(statements: str) -> str:
    """A kernel file that does something while it is imported, before the starter of rmsnorm."""
    return textwrap.dedent(statements).strip("\n") + "\n\n" + starters.source("rmsnorm", "triton")
