"""The Python module of an exported kernel: its files, by their names in the package.

| file | holds |
|---|---|
| ``__init__.py`` | the operation as a function, ``original``, ``report`` |
| ``kernel.py`` | the kernel; only its import of AutoKernel's backends is changed |
| ``original.py`` | the same in PyTorch |
| ``evidence.json`` | the calls that were verified, times, provenance |
| ``_support/`` | the guard, and what compiles and launches the kernel |
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from autokernel.errors import UsageError
from autokernel.export.carrying import SUPPORT, carried, packaged_kernel
from autokernel.export.evidence import parameters_of
from autokernel.export.original import original_source
from autokernel.export.selection import KeptKernel
from autokernel.ops.spec import KernelSpec

__all__ = ["example_of", "module_files", "typed_parameters"]

_PLAIN_CALL = """

@torch.compiler.disable
def _outside_graphs({parameters}) -> torch.Tensor:
    return _GUARD(({inputs}), {{{options}}})


def {name}({parameters}) -> torch.Tensor:
    \"\"\"{description}\"\"\"
    if torch.compiler.is_compiling():
        return _outside_graphs({arguments})
    return _GUARD(({inputs}), {{{options}}})
"""
_OPERATOR = """

@torch.library.custom_op("{namespace}::{name}", mutates_args=())
def _operator({parameters}) -> torch.Tensor:
    return _GUARD.as_operator(({inputs}), {{{options}}})


@_operator.register_fake
def _shape_of({parameters}) -> torch.Tensor:
    return _GUARD.as_fake(({inputs}), {{{options}}})


def {name}({parameters}) -> torch.Tensor:
    \"\"\"{description}

    Registered as torch.ops.{namespace}.{name}, which torch.compile and torch.export keep as one operator.
    \"\"\"
    if not torch.compiler.is_compiling():  # called directly, which is quicker
        return _GUARD(({inputs}), {{{options}}})
    if _GUARD.leaves(({inputs})):
        return original({arguments})
    return _operator({arguments})
"""
_MODULE = '''"""{title}

A kernel that AutoKernel found and verified; see evidence.json.  It runs on calls that were verified, and
PyTorch on all others; `report` says how often each did, and why.
"""

{imports}

import torch

from .{support}.guard import GuardedKernel
from .original import original

__all__ = [{public}]


def _load():
{load}    from . import kernel

    return kernel.kernel_fn


_GUARD = GuardedKernel(Path(__file__).with_name("evidence.json"), _load, original)
report = _GUARD.report
{call}'''
_INTERPRETED = """    if os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("it was verified in Triton's interpreter; set TRITON_INTERPRET=1 before Python starts")
"""


def module_files(kept: KeptKernel, facts: Mapping[str, Any], namespace: str | None) -> dict[str, str]:
    """The module's files, by path.

    Args:
        kept: The kernel.
        facts: From `facts_of`.
        namespace: Of the ``torch.library`` operator; None registers none.

    Raises:
        UsageError: The kernel or its PyTorch code needs what a package could not carry.
    """
    kernel, modules = packaged_kernel(kept.source)
    support = {f"{SUPPORT}/{name}": text for name, text in carried(modules).items()}
    return {
        "__init__.py": _init(kept, namespace),
        "kernel.py": kernel,
        "original.py": original_source(kept.spec),
        "evidence.json": json.dumps(facts, indent=1) + "\n",
        f"{SUPPORT}/__init__.py": '"""What the kernel needs around it; from AutoKernel."""\n',
        **support,
    }


def typed_parameters(spec: KernelSpec) -> str:
    """The operation's parameters with types, as an operator's schema is read from.

    Raises:
        UsageError: An option is of a kind that no operator takes.
    """
    words = []
    for one in inspect.signature(spec.reference).parameters.values():
        if one.default is one.empty:
            words.append(f"{one.name}: torch.Tensor")
        else:
            words.append(f"{one.name}: {_kind(spec, one)} = {one.default!r}")
    return ", ".join(words)


def example_of(spec: KernelSpec, setup: str) -> str:
    """A call in Markdown, after the lines of ``setup``."""
    inputs, options = parameters_of(spec)
    chosen = [f"{name}={value!r}" for name, value in options.items()]
    return f"```python\n{setup}\n\ny = {spec.name}({', '.join([*inputs, *chosen])})\n```"


def _kind(spec: KernelSpec, parameter: inspect.Parameter) -> str:
    if type(parameter.default) in (bool, int, float, str):
        return type(parameter.default).__name__
    annotation = parameter.annotation
    for name in ("float", "int", "bool", "str"):
        if parameter.default is None and name in str(annotation).replace("Optional[", "").split("|")[0].split("]")[0]:
            return f"Optional[{name}]"
    raise UsageError(
        f"the option {parameter.name} of {spec.name} is {parameter.default!r}; an exported kernel takes bool, int, "
        "float and str, or None with an annotation such as float | None"
    )


def _init(kept: KeptKernel, namespace: str | None) -> str:
    spec = kept.spec
    inputs, options = parameters_of(spec)
    call = (_PLAIN_CALL if namespace is None else _OPERATOR).format(
        name=spec.name,
        namespace=namespace,
        parameters=typed_parameters(spec),
        description=_docstring(spec.description or spec.name),
        inputs=", ".join(inputs) + ("," if len(inputs) == 1 else ""),
        options=", ".join(f'"{name}": {name}' for name in options),
        arguments=", ".join([*inputs, *options]),
    )
    imports = ["import os"] * kept.interpreted + ["from pathlib import Path"]
    imports += ["from typing import Optional"] * ("Optional[" in call)
    public = ", ".join(f'"{name}"' for name in sorted([spec.name, "original", "report"]))
    return _MODULE.format(
        title=_docstring(f"{spec.name}: {spec.description}" if spec.description else spec.name),
        imports="\n".join(imports),
        support=SUPPORT,
        public=public,
        load=_INTERPRETED if kept.interpreted else "",
        call=call,
    )


def _docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")
