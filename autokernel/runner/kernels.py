"""Load a kernel.py as a module and check that it follows the contract."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from autokernel import backends

__all__ = ["LoadError", "describe_exception", "lacking", "load"]


class LoadError(Exception):
    """The kernel file cannot be used; ``kind`` says which step failed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def describe_exception(error: BaseException, file: Path | None = None) -> str:
    """Say what was raised, and where in the candidate's file, in a few lines."""
    text = f"{type(error).__name__}: {error}".strip()
    if file is not None:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        if lines:
            text += f" (kernel.py line {lines[-1].lineno}: {(lines[-1].line or '').strip()})"
    return text[:4000]


def load(file: Path, *, inputs: int, options: list[str]) -> tuple[Callable[..., Any], str]:
    """Import ``file`` and return its ``kernel_fn`` and the backend that it names.

    Args:
        file: The kernel file.
        inputs: How many tensors the operation takes.
        options: The names of the keyword options that it must take.

    Raises:
        LoadError: It cannot be compiled or imported, or lacks a fitting ``kernel_fn``.
    """
    source = file.read_text()
    try:
        compile(source, str(file), "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise LoadError("syntax", f"kernel.py line {line}: {type(error).__name__}: {error}") from error
    name = f"autokernel_candidate_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    linecache.checkcache(os.fspath(file))
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise LoadError("import", f"importing kernel.py left the process with SystemExit({error.code!r})") from error
    except BaseException as error:
        raise LoadError("import", f"importing kernel.py raised {describe_exception(error, file)}") from error
    function = getattr(module, "kernel_fn", None)
    if not callable(function):
        raise LoadError("contract", "kernel.py defines no function kernel_fn; the runner calls kernel_fn(*inputs)")
    _check_signature(function, inputs, options)
    backend = getattr(module, "BACKEND", "triton")
    if backend not in backends.NAMES:
        raise LoadError("contract", f"BACKEND is {backend!r}; it must be one of {', '.join(backends.NAMES)}")
    return function, backend


def _check_signature(function: Callable[..., Any], inputs: int, options: list[str]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * inputs, **dict.fromkeys(options))
    except TypeError as error:
        wanted = ", ".join([f"{inputs} tensors", *[f"{name}=..." for name in options]])
        raise LoadError("contract", f"kernel_fn{signature} cannot be called with {wanted}: {error}") from error


def lacking(function: Callable[..., Any], options: Iterable[str]) -> list[str]:
    """The keyword options among ``options`` that ``kernel_fn`` does not take by name.

    ``**options`` may ignore what it takes, and such a kernel is right where the option is its default.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return list(options)
    by_name = {name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return [name for name in options if name not in by_name]
