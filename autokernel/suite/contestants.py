"""Who is timed: our kernels, PyTorch's ways to the same result, and installed libraries.

Each is the text of a kernel file, so that all are loaded and timed in the same way.  Libraries that
are not installed are said to be absent.
"""

from __future__ import annotations

import dataclasses
import importlib.util

from autokernel import ops, starters, tuned
from autokernel.errors import UsageError

__all__ = ["COMPILE_MODES", "Contestant", "alternatives", "ours"]

COMPILE_MODES = ("default", "max-autotune-no-cudagraphs")


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to compute an operation.

    Attributes:
        name: Its column: ``candidate`` (ours), ``pytorch``, ``composed``, ``compile``, or a library.
        source: The text of a kernel file.
        what: What it is, in a few words.
    """

    name: str
    source: str
    what: str


# PyTorch users write these by hand; elsewhere the operator itself is what they run.
_COMPOSED = ("flash_attention", "rmsnorm", "rotary_embedding")

_WITH_LIBRARY = """
import torch

{imports}

def kernel_fn({signature}):
    {body}
"""
_LIBRARIES: dict[tuple[str, str], tuple[str, str, str]] = {
    ("liger", "rmsnorm"): (
        "from liger_kernel.ops.rms_norm import LigerRMSNormFunction",
        "x, weight, eps=1e-6",
        'return LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)',
    ),
    ("liger", "layernorm"): (
        "from liger_kernel.ops.layer_norm import LigerLayerNormFunction",
        "x, weight, bias, eps=1e-5",
        "return LigerLayerNormFunction.apply(x, weight, bias, eps)",
    ),
    ("liger", "softmax"): (
        "from liger_kernel.ops.softmax import LigerSoftmaxFunction",
        "x",
        "return LigerSoftmaxFunction.apply(x)",
    ),
    ("quack", "rmsnorm"): ("from quack import rmsnorm", "x, weight, eps=1e-6", "return rmsnorm(x, weight, eps=eps)"),
    ("quack", "softmax"): ("from quack import softmax", "x", "return softmax(x)"),
    ("quack", "cross_entropy"): (
        "from quack import cross_entropy",
        "logits, targets",
        "return cross_entropy(logits, targets).float().mean()",
    ),
}
_MODULES = {"liger": "liger_kernel", "quack": "quack"}


def ours(operation: str, backends: tuple[str, ...], kernels: dict[str, str] | None = None) -> list[Contestant]:
    """Our kernels for an operation, the one to judge first.

    Args:
        operation: Its name.
        backends: Those that the device can run, the preferred one first.
        kernels: Texts to take instead, by operation.

    Raises:
        UsageError: There is no kernel for these backends.
    """
    if kernels and operation in kernels:
        return [Contestant("candidate", kernels[operation], "the kernel that was given")]
    found = [(backend, "tuned", tuned.source) for backend in backends if backend in tuned.backends(operation)]
    if not found:
        found = [
            (backend, "starter", starters.source) for backend in backends if backend in starters.backends(operation)
        ]
        found = found[:1]
    if not found:
        raise UsageError(f"there is no kernel of {operation} for {', '.join(backends)}; give one with --kernel")
    return [
        Contestant("candidate" if number == 0 else backend, source(operation, backend), f"{kind}, {backend}")
        for number, (backend, kind, source) in enumerate(found)
    ]


def alternatives(
    operation: str, *, compiled: bool = True, mode: str = COMPILE_MODES[1], libraries: bool = True
) -> tuple[list[Contestant], dict[str, str]]:
    """The others, and why a library that could do the operation is not among them, by its name."""
    found = [Contestant("pytorch", _torch(operation, "SPEC.baseline or SPEC.reference"), "PyTorch's operator")]
    composed = operation in _COMPOSED
    if composed:
        found.append(Contestant("composed", _torch(operation, "SPEC.composed"), "composed of PyTorch's operators"))
    if operation == "cross_entropy":
        native = "torch.nn.functional.cross_entropy"
        found.append(Contestant("narrow", _torch(operation, native), "PyTorch's operator, in the logits' own dtype"))
    if compiled:
        inner = "SPEC.composed" if composed else "SPEC.baseline or SPEC.reference"
        found.append(Contestant("compile", _compiled(operation, inner, mode), f"torch.compile, mode {mode}"))
    absent = {}
    for (name, which), (imports, signature, body) in _LIBRARIES.items():
        if which != operation or not libraries:
            continue
        if importlib.util.find_spec(_MODULES[name]) is None:
            absent[name] = f"{_MODULES[name]} is not installed"
            continue
        text = _WITH_LIBRARY.format(imports=imports, signature=signature, body=body)
        found.append(Contestant(name, text, f"the library {_MODULES[name]}"))
    return found, absent


def _torch(operation: str, expression: str) -> str:
    assert operation in ops.names()
    return f"import torch\n\nfrom autokernel import ops\n\nSPEC = ops.get({operation!r})\nkernel_fn = {expression}\n"


def _compiled(operation: str, expression: str, mode: str) -> str:
    # Each size is compiled for itself, as a model with fixed sizes would have it, and none gives up after a few.
    text = _torch(operation, expression)
    return (
        f"{text}\nimport torch._dynamo\n\n"
        'for name in ("recompile_limit", "cache_size_limit"):  # one fact, named differently from version to version\n'
        "    if hasattr(torch._dynamo.config, name):\n"
        "        setattr(torch._dynamo.config, name, 64)\n"
        f"kernel_fn = torch.compile(kernel_fn, mode={mode!r}, dynamic=False)\n"
    )
