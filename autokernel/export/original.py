"""The PyTorch code that an exported kernel stands for, as a file of its own.

It is what the run timed as "pytorch": the spec's baseline, or its reference.  The function is taken from its
file with all that it uses there: functions, constants, imports.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from autokernel.errors import UsageError
from autokernel.ops.spec import KernelSpec

__all__ = ["original_source"]

_PUBLIC: tuple[tuple[str, ModuleType], ...] = (("torch", torch), ("torch.nn.functional", torch.nn.functional))


def original_source(spec: KernelSpec) -> str:
    """The text of a module that defines ``original`` with the parameters of the spec's reference.

    Raises:
        UsageError: The function stands in no file of its own, or uses what a package could not carry.
    """
    function = spec.baseline or spec.reference
    for path, module in _PUBLIC:
        if getattr(module, getattr(function, "__name__", ""), None) is function:
            return f"import {path}\n\noriginal = {path}.{function.__name__}\n"
    return f"{_with_needs(function, spec.name)}\n\n\noriginal = {function.__name__}\n"


def _with_needs(function: Callable[..., Any], operation: str) -> str:
    module = inspect.getmodule(function)
    name = getattr(function, "__name__", "")
    if module is None or getattr(module, name, None) is not function or not inspect.isfunction(function):
        raise UsageError(
            f"what PyTorch runs for {operation} is {function!r}; only a function at the top level of a file can be "
            "exported"
        )
    text = inspect.getsource(module)
    lines = text.split("\n")
    definitions = _definitions(ast.parse(text))
    wanted, chosen = [name], {}
    while wanted:
        one = wanted.pop()
        statement = definitions.get(one)
        if statement is None or one in chosen:  # a builtin or a local name
            continue
        chosen[one] = statement
        if not isinstance(statement, (ast.Import, ast.ImportFrom)):
            wanted += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    imports = {_import_of(name, one, operation) for name, one in chosen.items() if _is_import(one)}
    bodies = sorted({_span(one) for one in chosen.values() if not _is_import(one)})
    head = "\n".join(["from __future__ import annotations", "", *sorted(imports)])
    return "\n\n\n".join([head, *("\n".join(lines[begin:end]) for begin, end in bodies)])


def _definitions(module: ast.Module) -> dict[str, ast.stmt]:
    """The statement that defines each name at the top level of a file."""
    found: dict[str, ast.stmt] = {}
    for statement in module.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            found[statement.name] = statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found |= {node.id: statement for target in targets for node in ast.walk(target)
                      if isinstance(node, ast.Name)}  # fmt: skip
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0]: statement for alias in statement.names}
    return found


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _import_of(name: str, statement: ast.stmt, operation: str) -> str:
    """The import of one name alone."""
    assert isinstance(statement, (ast.Import, ast.ImportFrom))
    alias = next(one for one in statement.names if (one.asname or one.name).partition(".")[0] == name)
    module = statement.module or "" if isinstance(statement, ast.ImportFrom) else alias.name
    is_neighbour = isinstance(statement, ast.ImportFrom) and statement.level > 0
    if module.partition(".")[0] == "autokernel" or is_neighbour:
        raise UsageError(
            f"the PyTorch code of {operation} uses {name} of {module or 'a neighbouring file'}, which a package cannot "
            "carry; define it in the same file"
        )
    if isinstance(statement, ast.ImportFrom):
        return ast.unparse(ast.ImportFrom(module=module, names=[alias], level=0))
    return ast.unparse(ast.Import(names=[alias]))


def _span(statement: ast.stmt) -> tuple[int, int]:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)]) - 1, statement.end_lineno or statement.lineno
