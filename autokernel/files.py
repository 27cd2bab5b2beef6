"""Files that survive a kill: atomic replacement, whole-line appends, and the lock of a run.

A file is replaced by writing a neighbour and renaming it, so that a reader sees the old text or
the new one.  A line is appended in one write and synced; what a kill leaves of a line (a *torn
tail*) is cut off by the next writer and ignored by readers.  What the files mean is the business
of `journal`, `events` and `results`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from autokernel.errors import RunBusy, RunUnwritable

__all__ = [
    "RunLock",
    "append",
    "cut_torn_tail",
    "driver_of",
    "now",
    "read_jsonl",
    "remove_tree",
    "writable",
    "write_atomic",
]


def now() -> str:
    """The time in UTC, ISO 8601 with seconds, such as ``2025-11-30T11:35:22Z``."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn the system's refusals to write ``path`` into one error that says what to do.

    Raises:
        RunUnwritable: The disk is full, or the folder is read-only or another user's.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "free some space and run again: the run continues where it stopped"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = "make it writable for this user, or choose another folder with --root"
        else:
            raise
        raise RunUnwritable(f"cannot write {path}: {error.strerror}; {advice}") from error


def write_atomic(path: Path, data: str | bytes) -> None:
    """Replace the content of ``path``; a reader sees the old or the new, whole.

    Raises:
        RunUnwritable: The folder cannot be written, or the disk is full; the old content is left.
    """
    neighbour = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    with writable(path):
        try:
            with open(neighbour, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.replace(neighbour, path)
        except OSError:
            with contextlib.suppress(OSError):
                neighbour.unlink()
            raise
        _sync_folder(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder that was begun and is of no use; what cannot be removed is left."""
    shutil.rmtree(path, ignore_errors=True)


def append(path: Path, line: bytes, *, sync: bool = True) -> None:
    """Append ``line`` (with its newline) in one piece.

    Args:
        path: The file; created when missing.
        line: What to append.
        sync: Wait until it is on disk.

    Raises:
        RunUnwritable: It could not be written; nothing of it is left in the file.
    """
    with writable(path), open(path, "ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise
        if sync and size == 0:
            _sync_folder(path.parent)


def cut_torn_tail(path: Path) -> bytes:
    """Cut off and return what stands after the last newline; ``b""`` if the file ends in one."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return b""
    with open(path, "rb") as file:
        start, tail = size, b""
        while start > 0 and b"\n" not in tail:
            start = max(0, start - 65536)
            file.seek(start)
            tail = file.read(size - start)
    torn = tail[tail.rfind(b"\n") + 1 :]
    if torn:
        with writable(path):
            os.truncate(path, size - len(torn))
    return torn


def read_jsonl(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Read the whole lines of a JSON-lines file from ``offset`` on.

    Returns:
        The objects, and the offset behind the last whole line.  Lines that are no JSON object are
        passed over; a torn tail is left for the next call.
    """
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    end = data.rfind(b"\n") + 1
    entries = []
    for line in data[:end].splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries, offset + end


class RunLock:
    """The right to drive a run: held by one open file, gone with the process that held it.

    Raises:
        RunBusy: Another session, in this process or another, holds it; the message says which.
        RunUnwritable: The lock file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with writable(path):
            self._file: IO[bytes] | None = open(path, "a+b", buffering=0)  # noqa: SIM115 - held until release
        for attempt in range(5):  # a reader that asks who drives holds the lock for an instant
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if attempt == 4:
                    self._file.close()
                    raise RunBusy(_busy(path)) from None
                time.sleep(0.05)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        with writable(path):
            self._file.truncate(0)
            self._file.write(json.dumps(holder).encode() + b"\n")

    def release(self) -> None:
        """Let another process drive the run."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(0)
            self._file.close()
            self._file = None


def driver_of(path: Path) -> dict[str, Any] | None:
    """Who holds the lock at ``path``: ``pid``, ``host``, ``since``; None if nobody does."""
    try:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except OSError:
                holder = json.loads(file.read() or b"{}")
                return holder if isinstance(holder, dict) else {}
    except (FileNotFoundError, ValueError):
        return None


def _busy(path: Path) -> str:
    run = path.parent.parent
    holder = driver_of(path) or {}
    who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"
    return (
        f"{run} is being driven by {who}; watch it with RunFolder({str(run)!r}) or `autokernel status {run}`, "
        "or stop it first"
    )


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
