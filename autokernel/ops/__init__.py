"""The operations: those that ship, one file each, and those of a user's own file.

Adding one is adding ``ops/<name>.py`` with a ``SPEC``; nothing else lists it.  Which names there are is
known without torch, so that a wrong one is refused at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autokernel.errors import InvalidSpec, UnknownOperation
from autokernel.hints import did_you_mean

if TYPE_CHECKING:
    from autokernel.ops.spec import Case as Case
    from autokernel.ops.spec import KernelSpec as KernelSpec
    from autokernel.ops.spec import Magnitude as Magnitude
    from autokernel.ops.spec import TimingCase as TimingCase

__all__ = ["Case", "KernelSpec", "Magnitude", "TimingCase", "check", "get", "load_file", "names", "resolve"]

_HELPERS = {"fills", "modelnew", "problem", "rowwise", "spec"}
_OF_SPEC = {"Case", "KernelSpec", "Magnitude", "TimingCase"}  # `spec` imports torch, so it is imported when needed


def __getattr__(name: str) -> Any:
    if name in _OF_SPEC:
        return getattr(importlib.import_module("autokernel.ops.spec"), name)
    raise AttributeError(f"module 'autokernel.ops' has no attribute {name!r}")


def names() -> tuple[str, ...]:
    """The names of the operations that ship, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _HELPERS))


def get(name: str) -> KernelSpec:
    """Return the spec of a shipped operation.

    Raises:
        UnknownOperation: There is none of that name; the message lists those that there are.
    """
    check(name)
    spec = importlib.import_module(f"autokernel.ops.{name}").SPEC
    assert isinstance(spec, _kernel_spec())
    return spec


def check(reference: str) -> None:
    """Make sure, without importing torch, that ``reference`` (see `resolve`) is a file's or a shipped operation's.

    Raises:
        UnknownOperation: It is neither; the message lists the operations that there are.
    """
    if _file_of(reference) is None and reference not in names():
        raise UnknownOperation(
            f"unknown operation {reference!r}{did_you_mean(reference, names())}; known: {', '.join(names())}; "
            "or pass a file with --spec"
        )


def load_file(path: str | Path, name: str | None = None) -> KernelSpec:
    """Return the `KernelSpec` that a Python file defines at its top level.

    Args:
        path: The file.  It is executed, as an import would.
        name: The spec's name, if the file defines several.

    Raises:
        InvalidSpec: The file cannot be read or run, or defines no such spec, or several.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise InvalidSpec(f"no spec file at {file}; give the path of a Python file that defines a KernelSpec")
    module = _execute(file)
    kind = _kernel_spec()
    specs = {value.name: value for value in vars(module).values() if isinstance(value, kind)}
    if name is not None:
        if name not in specs:
            raise InvalidSpec(
                f"{file} defines no KernelSpec named {name!r}{did_you_mean(name, specs)}; "
                f"it defines: {', '.join(specs) or 'none'}"
            )
        return specs[name]
    if len(specs) != 1:
        raise InvalidSpec(
            f"{file} defines {len(specs)} KernelSpecs ({', '.join(specs) or 'none'}); "
            "define one at the top level, or name one as FILE:NAME"
        )
    return next(iter(specs.values()))


def resolve(reference: str) -> KernelSpec:
    """Return the spec that ``reference`` names: ``rmsnorm``, ``my_op.py`` or ``my_op.py:name``."""
    file = _file_of(reference)
    return get(reference) if file is None else load_file(*file)


def _file_of(reference: str) -> tuple[str, str | None] | None:
    """The file of ``my_op.py`` or ``my_op.py:name``, and the name; None for a shipped operation's name."""
    path, _, name = reference.rpartition(":")
    if path.endswith(".py"):
        return path, name
    return (reference, None) if reference.endswith(".py") else None


def _kernel_spec() -> type[KernelSpec]:
    from autokernel.ops.spec import KernelSpec

    return KernelSpec


def _execute(file: Path) -> ModuleType:
    module_name = f"autokernel_user_spec_{file.stem}"
    description = importlib.util.spec_from_file_location(module_name, file)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[module_name] = module
    try:
        description.loader.exec_module(module)
    except Exception as error:
        raise InvalidSpec(f"running the spec file {file} raised {type(error).__name__}: {error}") from error
    return module
