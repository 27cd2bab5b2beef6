"""The folder in which compiled kernels are kept, and how a file gets there whole.

``AUTOKERNEL_CACHE_DIR`` names the folder; without it a private temporary one lives as long as the
process.  A file is written under another name and renamed, so that two processes building the same
kernel never see half of it.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from autokernel.errors import BackendUnavailable

__all__ = ["cache_dir", "digest", "publish", "scratch"]


def digest(parts: Iterable[object]) -> str:
    """Return 32 hexadecimal digits that identify the sequence ``parts``."""
    return hashlib.sha256(repr([str(part) for part in parts]).encode()).hexdigest()[:32]


def cache_dir() -> Path:
    """Return the folder for compiled kernels, made if need be.

    Raises:
        BackendUnavailable: The folder cannot be made.
    """
    named = os.environ.get("AUTOKERNEL_CACHE_DIR")
    if not named:
        return _private_dir()
    folder = Path(named)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def scratch(folder: Path) -> Path:
    """Make a new empty folder inside ``folder``, on the same file system.

    Raises:
        BackendUnavailable: ``folder`` cannot be written.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
    except OSError as error:
        raise _unwritable(folder, error) from error


def publish(file: Path, target: Path) -> None:
    """Move the finished ``file`` to ``target``; whoever comes second replaces an equal file."""
    os.replace(file, target)


@functools.lru_cache(maxsize=1)
def _private_dir() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="autokernel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _unwritable(folder: Path, error: OSError) -> BackendUnavailable:
    return BackendUnavailable(
        f"the folder for compiled kernels, {folder}, cannot be written ({error.strerror}); "
        "point AUTOKERNEL_CACHE_DIR at a folder that can"
    )
