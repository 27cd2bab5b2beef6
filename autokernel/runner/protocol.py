"""How judge and runner talk: JSON frames over a Unix socket, tensors in a shared memory file.

Nothing that comes from a runner is unpickled.  A frame is a 4-byte length and UTF-8 JSON; file
descriptors travel beside a frame.  The arena is one memory file that both sides map; its pages
exist only once touched.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["ARENA_BYTES", "GUARD_BYTES", "Arena", "Closed", "DeadlinePassed", "receive", "send"]

ARENA_BYTES = 16 << 30
GUARD_BYTES = 4096
MAX_FRAME_BYTES = 64 << 20
_LENGTH = struct.Struct("!I")


class Closed(Exception):
    """The other side has gone."""


class DeadlinePassed(Exception):
    """No whole frame came before the deadline."""


def send(sock: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send one JSON-ready message, with open file descriptors beside it."""
    data = json.dumps(message).encode()
    frame = _LENGTH.pack(len(data)) + data
    try:
        if fds:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = sock.sendmsg([frame], ancillary)
            frame = frame[sent:]
        sock.sendall(frame)
    except OSError as error:
        raise Closed(str(error)) from error


def receive(sock: socket.socket, *, seconds: float | None = None, max_fds: int = 0) -> tuple[Any, list[int]]:
    """Receive one message and the file descriptors beside it.

    Raises:
        Closed: The other side closed the socket, or sent what is no frame.
        DeadlinePassed: ``seconds`` went by.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    fds: list[int] = []
    header = _read(sock, _LENGTH.size, deadline, fds, max_fds)
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise Closed(f"a frame of {length} bytes was announced, over the limit of {MAX_FRAME_BYTES}")
    body = _read(sock, length, deadline, fds, 0)
    try:
        return json.loads(body), fds
    except ValueError as error:
        raise Closed(f"a frame that is no JSON: {error}") from error


def _read(sock: socket.socket, count: int, deadline: float | None, fds: list[int], max_fds: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed
            sock.settimeout(left)
        else:
            sock.settimeout(None)
        try:
            if max_fds and not fds:
                chunk, ancillary, _flags, _address = sock.recvmsg(count - len(chunks), socket.CMSG_SPACE(4 * max_fds))
                for level, kind, data in ancillary:
                    if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                        fds.extend(array.array("i", data[: len(data) - len(data) % 4]))
            else:
                chunk = sock.recv(count - len(chunks))
        except TimeoutError:
            raise DeadlinePassed from None
        except OSError as error:
            raise Closed(str(error)) from error
        if not chunk:
            raise Closed("end of stream")
        chunks += chunk
    return bytes(chunks)


class Arena:
    """A memory file that judge and runner both map: inputs and outputs of calls.

    Attributes:
        fd: The file descriptor, to be handed to the runner.
        map: The mapping, of `ARENA_BYTES`; untouched pages cost nothing.
    """

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("autokernel-arena", os.MFD_CLOEXEC)
            os.ftruncate(fd, ARENA_BYTES)
        self.fd = fd
        self.map = mmap.mmap(fd, ARENA_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def release(self) -> None:
        """Give all pages back to the system; the contents become zeros."""
        os.ftruncate(self.fd, 0)
        os.ftruncate(self.fd, ARENA_BYTES)

    def close(self) -> None:
        """Close the file; the mapping goes with the last tensor that lies in it."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        try:
            self.map.close()
        except BufferError:  # a tensor still lies in it
            pass
