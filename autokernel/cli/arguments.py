"""What commands take: options that several of them share, and how their texts are read."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from autokernel import backends, ops
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.verdict import Stage

__all__ = [
    "DTYPES",
    "AgentOption",
    "ApprovalOption",
    "BackendOption",
    "DeviceOption",
    "DtypeOption",
    "JsonOption",
    "OperationOption",
    "RootOption",
    "ShapeOption",
    "SpecOption",
    "WorkersOption",
    "device_option",
    "kernel_type",
    "one_of",
    "parse_shapes",
    "parse_stages",
    "read_kernel",
    "reference_of",
]

DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn")
_Given = TypeVar("_Given", str | None, list[str] | None)
_MAX_KERNEL_BYTES = 4 << 20
_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_SHAPE_ITEM = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*([1-9]\d*)\s*")
_KERNEL_TYPE_LINE = re.compile(r"""^KERNEL_TYPE\s*(?::\s*str\s*)?=\s*(["'])(\w+)\1""", re.MULTILINE)


def device_option(value: str) -> str:
    """Check the text of ``--device``; whether the device is there is found out later."""
    if not _DEVICE.fullmatch(value):
        raise typer.BadParameter(f"{value!r} is no device; use auto, cpu, cuda or cuda:N")
    return value


def _dtype_option(value: str | None) -> str | None:
    if value is not None and value not in DTYPES:
        raise typer.BadParameter(f"{value!r} is no dtype{did_you_mean(value, DTYPES)}; use {', '.join(DTYPES)}")
    return value


def one_of(*values: str) -> Callable[[_Given], _Given]:
    """A check for an option that takes one of ``values``, or that is repeatable and takes several."""

    def check(given: _Given) -> _Given:
        for one in [given] if isinstance(given, str) else given or ():
            if one not in values:
                raise typer.BadParameter(f"{one!r} is none of {', '.join(values)}{did_you_mean(one, values)}")
        return given

    return check


def agent_option(value: str) -> str:
    """Check the name in ``--agent``; whether a recorded run or a key is there is found out later."""
    from autokernel import agents

    agents.check(value)
    return value


DeviceOption = Annotated[str, typer.Option(callback=device_option, help="auto, cpu, cuda or cuda:N.")]
DtypeOption = Annotated[
    str | None, typer.Option(callback=_dtype_option, help="float16, bfloat16, float32 or float8_e4m3fn.")
]
BackendOption = Annotated[
    str, typer.Option(callback=one_of("auto", *backends.NAMES), help="auto, triton, cuda or cpp.")
]
AgentOption = Annotated[
    str, typer.Option(callback=agent_option, help="auto, search, human, replay:RUN or openai:MODEL.")
]
ApprovalOption = Annotated[
    str, typer.Option(callback=one_of("auto", "approve"), help="auto: keep by policy; approve: a person decides.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
OperationOption = Annotated[str | None, typer.Option(help="Operation; default: KERNEL_TYPE in the file.")]
RootOption = Annotated[Path, typer.Option(help="Folder that holds the runs.")]
ShapeOption = Annotated[list[str] | None, typer.Option(help="Sizes to time on, such as M=4096,N=4096; repeatable.")]
WorkersOption = Annotated[
    str | None,
    typer.Option(help="Judge on several: local:N (a process for each GPU), or a Dask scheduler, tcp://HOST:PORT."),
]
SpecOption = Annotated[Path | None, typer.Option(help="Python file that defines your KernelSpec.")]


def parse_shapes(texts: Sequence[str] | None) -> list[dict[str, int]] | None:
    """Read ``M=4096,N=4096`` texts.

    Returns:
        One mapping for each text, or None if there is none.

    Raises:
        UsageError: A text is not ``NAME=SIZE,...`` with sizes above 0, or names a size twice.

    >>> parse_shapes(["M=4,N=8"])
    [{'M': 4, 'N': 8}]
    """
    if not texts:
        return None
    shapes = []
    for text in texts:
        items = [_SHAPE_ITEM.fullmatch(item) for item in text.split(",")]
        shape = {item[1]: int(item[2]) for item in items if item}
        if None in items or len(shape) != len(items):
            raise UsageError(f"cannot read the shape {text!r}; write it as M=4096,N=4096, each size once and above 0")
        shapes.append(shape)
    return shapes


def parse_stages(names: Sequence[str] | None) -> list[Stage] | None:
    """Read names of verification stages.

    Raises:
        UsageError: One is unknown; the message lists all five.
    """
    if not names:
        return None
    known = {stage.value: stage for stage in Stage}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown verification stage {name!r}{did_you_mean(name, known)}; use {', '.join(known)}")
    return [stage for name, stage in known.items() if name in names]


def read_kernel(path: Path) -> str:
    """Return the text of a kernel file.

    Raises:
        UsageError: It is missing, no regular file, unreadable, too large, or not UTF-8.
    """
    try:
        if not path.is_file():
            what = "is no regular file" if path.exists() else "does not exist"
            raise UsageError(f"the kernel file {str(path)!r} {what}; give the path of a kernel.py")
        size = path.stat().st_size
        if size > _MAX_KERNEL_BYTES:
            raise UsageError(f"the kernel file {str(path)!r} has {size} bytes, over the limit of {_MAX_KERNEL_BYTES}")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the kernel file {str(path)!r} is not UTF-8 text (byte {error.start}); save it so") from None
    except OSError as error:
        raise UsageError(f"cannot read the kernel file {str(path)!r}: {error.strerror}") from None


def kernel_type(source: str) -> str | None:
    """Find the ``KERNEL_TYPE`` that a kernel file states, without running it; None if it states none.

    >>> kernel_type('KERNEL_TYPE = "softmax"')
    'softmax'
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = _KERNEL_TYPE_LINE.search(source)  # a file that does not parse is for the verifier to reject
        return found[2] if found else None
    names: list[str] = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        stated = any(isinstance(target, ast.Name) and target.id == "KERNEL_TYPE" for target in targets)
        if stated and isinstance(value, ast.Constant) and isinstance(value.value, str):
            names.append(value.value)
    return names[-1] if names else None


def reference_of(operation: str | None, spec: Path | None, source: str | None = None, path: Path | None = None) -> str:
    """The reference (see `autokernel.ops.resolve`) that the options, or else the kernel file, name.

    Raises:
        UsageError: Nothing names an operation.
        UnknownOperation: What is named is neither a shipped operation nor a file.
    """
    if spec is not None:
        where = spec.resolve()
        if where.suffix != ".py":
            raise UsageError(f"the spec file {str(spec)!r} is no Python file; give one that ends in .py")
        return f"{where}:{operation}" if operation else str(where)
    if operation:
        ops.check(operation)
        return operation
    stated = None if source is None else kernel_type(source)
    if stated is None:
        raise UsageError(
            f"{str(path)!r} states no KERNEL_TYPE, so what it should compute is unknown; "
            'add a line such as KERNEL_TYPE = "rmsnorm", or pass --operation or --spec'
        )
    ops.check(stated)
    return stated
