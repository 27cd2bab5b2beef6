"""The backends: how a ``kernel.py`` is compiled and launched.

A kernel file uses them as ``from autokernel.backends import cpp`` (or ``cuda``); Triton kernels
need nothing from here.  This file imports neither torch nor a compiler, so that a tool can ask what
a kernel needs, and whether that is here, without loading it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util

from autokernel.errors import BackendUnavailable, InvalidKernel
from autokernel.hints import did_you_mean

__all__ = ["NAMES", "available", "of"]

NAMES = ("triton", "cuda", "cpp")


def of(source: str) -> str:
    """Return the backend that the text of a kernel file declares; ``triton`` if it declares none.

    Raises:
        InvalidKernel: The text has a syntax error, or ``BACKEND`` is no string or names no backend.
    """
    try:
        module = ast.parse(source, "kernel.py")
    except (SyntaxError, ValueError) as error:
        raise InvalidKernel(f"the kernel file is not valid Python: {error}") from error
    backend = "triton"
    for statement in module.body:
        value = _assigned(statement, "BACKEND")
        if value is None:
            continue
        if not isinstance(value, ast.Constant) or value.value not in NAMES:
            raise InvalidKernel(
                f"line {statement.lineno}: BACKEND is {ast.unparse(value)}; write one of {', '.join(map(repr, NAMES))}"
            )
        backend = str(value.value)
    return backend


@functools.cache
def available(name: str) -> tuple[bool, str]:
    """Say whether kernels of the backend ``name`` can be compiled here, and why (not).

    A backend that compiles here may still need a device to run: CUDA kernels compile on any machine.

    Returns:
        Whether it is there, and a sentence: the compiler and its version, or what to install.
    """
    if name == "triton":
        if importlib.util.find_spec("triton") is None:
            return False, "the package triton is not installed; pip install triton"
        return True, "triton is installed (on a machine without a GPU its interpreter runs the kernels)"
    if name not in ("cpp", "cuda"):
        return False, f"no backend is called {name!r}{did_you_mean(name, NAMES)}; known: {', '.join(NAMES)}"
    try:
        module = importlib.import_module(f"autokernel.backends.{name}")
        return True, str(module.describe())
    except BackendUnavailable as error:
        return False, str(error)


def _assigned(statement: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return None
    return statement.value if any(isinstance(target, ast.Name) and target.id == name for target in targets) else None
