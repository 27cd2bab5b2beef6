"""The starters: for each operation and backend, the first ``kernel.py``, simple and correct."""

from __future__ import annotations

from pathlib import Path

from autokernel.errors import UnknownOperation

__all__ = ["BACKENDS", "backends", "source"]

BACKENDS = ("triton", "cuda", "cpp")
_ROOT = Path(__file__).parent


def backends(name: str) -> tuple[str, ...]:
    """The backends for which the operation ``name`` has a starter."""
    return tuple(backend for backend in BACKENDS if (_ROOT / backend / f"{name}.py").is_file())


def source(name: str, backend: str) -> str:
    """Return the text of a starter.

    Raises:
        UnknownOperation: There is no such starter; the message lists the backends that have one.
    """
    file = _ROOT / backend / f"{name}.py"
    if backend not in BACKENDS or not file.is_file():
        have = ", ".join(backends(name)) or "none"
        raise UnknownOperation(
            f"no {backend!r} starter for {name!r} (backends with one: {have}); pass a kernel file to start from"
        )
    return file.read_text()
