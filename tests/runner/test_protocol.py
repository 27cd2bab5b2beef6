"""Frames between judge and runner, and the arena that both map."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from autokernel.runner import protocol
from autokernel.runner.protocol import ARENA_BYTES, Arena, Closed, DeadlinePassed, receive, send


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_message_arrives_as_it_was_sent(pair):
    message = {"op": "call", "numbers": [1, 2.5, None], "text": "ü\n\x00", "nested": {"a": [True]}}

    send(pair[0], message)

    assert receive(pair[1], seconds=1) == (message, [])


def test_a_long_message_arrives_whole_though_the_socket_takes_it_in_pieces(pair):
    message = ["x" * 1000] * 5000
    sender = threading.Thread(target=send, args=(pair[0], message))
    sender.start()

    received, _fds = receive(pair[1], seconds=10)
    sender.join()

    assert received == message


def test_file_descriptors_travel_beside_a_message(pair, tmp_path):
    file = tmp_path / "file"
    file.write_text("content")
    with open(file) as handle:
        send(pair[0], "here", [handle.fileno()])

    message, fds = receive(pair[1], seconds=1, max_fds=2)

    assert (message, len(fds)) == ("here", 1)
    with os.fdopen(fds[0]) as copy:
        assert copy.read() == "content"


def test_a_deadline_passes_though_a_part_of_a_frame_has_come(pair):
    pair[0].sendall(struct.pack("!I", 100) + b"{")
    begin = time.monotonic()

    with pytest.raises(DeadlinePassed):
        receive(pair[1], seconds=0.1)

    assert 0.1 <= time.monotonic() - begin < 2


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "end of stream"),
        (b"\x00\x00", "end of stream"),
        (struct.pack("!I", 10) + b"{}", "end of stream"),
        (b"\xff\xff\xff\xff" * 8, "over the limit"),
        (struct.pack("!I", 4) + b"{[}]", "no JSON"),
        (struct.pack("!I", 2) + b"\xff\xfe", "no JSON"),
    ],
)
def test_what_is_no_frame_counts_as_a_closed_connection(pair, sent, message):
    pair[0].sendall(sent)
    pair[0].close()

    with pytest.raises(Closed, match=message):
        receive(pair[1], seconds=1)


def test_sending_to_one_who_has_gone_says_so(pair):
    pair[1].close()

    with pytest.raises(Closed):
        send(pair[0], "x" * 100)


def test_both_sides_of_an_arena_see_the_same_bytes_and_untouched_pages_cost_nothing():
    arena = Arena()
    other = Arena(os.dup(arena.fd))

    arena.map[ARENA_BYTES - 3 :] = b"end"

    assert other.map[ARENA_BYTES - 3 :] == b"end"
    assert os.fstat(arena.fd).st_blocks * 512 <= 1 << 21
    for one in (arena, other):
        one.close()
        one.close()  # twice is as good as once


def test_a_released_arena_gives_its_pages_back():
    arena = Arena()
    arena.map[: 8 << 20] = b"\xff" * (8 << 20)
    assert os.fstat(arena.fd).st_blocks * 512 >= 8 << 20

    arena.release()

    assert os.fstat(arena.fd).st_blocks == 0
    assert arena.map[:4] == b"\0\0\0\0"
    arena.close()


def test_frames_are_bounded():
    assert protocol.MAX_FRAME_BYTES < 1 << 30
