"""The tuned kernels: for an operation and backend, the fastest verified ``kernel.py`` known for Hopper GPUs.

They follow the contract of the starters and run wherever the backend does; their constants were
chosen on one kind of device, so elsewhere they are a start like any other.
"""

from __future__ import annotations

from pathlib import Path

from autokernel.errors import UnknownOperation

__all__ = ["BACKENDS", "backends", "source"]

BACKENDS = ("triton", "cuda")
_ROOT = Path(__file__).parent


def backends(name: str) -> tuple[str, ...]:
    """The backends for which the operation ``name`` has a tuned kernel; the first is the one to prefer."""
    return tuple(backend for backend in BACKENDS if (_ROOT / backend / f"{name}.py").is_file())


def source(name: str, backend: str) -> str:
    """Return the text of a tuned kernel.

    Raises:
        UnknownOperation: There is no such kernel; the message lists the backends that have one.
    """
    file = _ROOT / backend / f"{name}.py"
    if backend not in BACKENDS or not file.is_file():
        have = ", ".join(backends(name)) or "none"
        raise UnknownOperation(
            f"no tuned {backend!r} kernel for {name!r} (backends with one: {have}); begin with the starter"
        )
    return file.read_text()
