"""What an exported package carries of AutoKernel itself, so that it needs none: compilers' loaders and the guard.

There is one text of each, the module that runs here; only its imports are made relative.  So a kernel is
compiled and launched in the package as it was when it was verified.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import sys
from collections.abc import Iterable
from pathlib import Path

import autokernel
from autokernel.errors import InvalidKernel

__all__ = ["SUPPORT", "carried", "packaged_kernel"]

SUPPORT = "_support"
_OURS = "autokernel"
_PACKAGES = ("autokernel.backends",)  # of which modules are imported by name
_GUARD = "autokernel.export.guard"


def packaged_kernel(source: str) -> tuple[str, set[str]]:
    """A kernel's text as it stands in a package, and the modules of AutoKernel that it needs.

    Nothing but an import of ``autokernel.backends`` is changed.

    Raises:
        InvalidKernel: It imports something that a package could not promise.
    """
    for name in sorted(_imported(source)):
        top = name.partition(".")[0]
        if top == _OURS and not name.startswith(_PACKAGES):
            raise InvalidKernel(f"the kernel imports {name}, which a package cannot carry; only {_PACKAGES[0]} can be")
        if top not in (_OURS, "torch", "triton") and top not in sys.stdlib_module_names:
            raise InvalidKernel(
                f"the kernel imports {name or 'a module beside it'}; one that is exported may import torch, triton and "
                "the standard library"
            )
    return _relative(source, f".{SUPPORT}")


def carried(modules: Iterable[str]) -> dict[str, str]:
    """The files of the guard, of ``modules`` and of all that they need, by their names in the package."""
    waiting, files = {_GUARD, *modules}, {}
    while waiting:
        name = waiting.pop()
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None
        origin = f"# {name} of AutoKernel {autokernel.__version__} (MIT licence); its imports are made relative.\n"
        text, needed = _relative(Path(found.origin).read_text(encoding="utf-8"), "")
        files[f"{name.rpartition('.')[2]}.py"] = origin + text
        waiting |= {module for module in needed if f"{module.rpartition('.')[2]}.py" not in files}
    return files


def _imported(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else node.module or "")
    return names


def _relative(source: str, folder: str) -> tuple[str, set[str]]:
    """The text with its imports of AutoKernel made relative to ``folder``, and the modules that they name."""
    lines = io.StringIO(source, newline="").readlines()  # at the line ends that Python sees, and no others
    needed: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.Import) and any(name.partition(".")[0] == _OURS for name in names):
            raise InvalidKernel(f"line {node.lineno}: write from autokernel.backends import ... to be exported")
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != _OURS:
            continue
        module = str(node.module)
        is_package = module in _PACKAGES
        needed |= {f"{module}.{name}" for name in names} if is_package else {module}
        old = f"from {module} import"
        new = f"from {folder or '.'} import" if is_package else f"from {folder}.{module.rpartition('.')[2]} import"
        if old not in lines[node.lineno - 1]:
            raise InvalidKernel(f"line {node.lineno}: write {old} ... with single spaces to be exported")
        lines[node.lineno - 1] = lines[node.lineno - 1].replace(old, new, 1)
    return "".join(lines), needed
