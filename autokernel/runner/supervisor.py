"""The supervisor: stands between the zygote and a runner, bounds what it starts, and leaves nothing behind.

It lives outside the runner's process namespace, reaps what the runner leaves, and ends with the runner's
exit status.  A few times a second it counts the runner's processes and threads, and where the scratch
folder has no size of its own (`sandbox.limit_folder`) what lies in it; over a limit it ends them all and
writes why into the pipe to the zygote.  It runs no candidate's code.

Units: seconds, bytes.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autokernel.runner import sandbox

__all__ = ["children_by_parent", "supervise"]

_LOOK_SECONDS = 0.1
_FOLDER_SECONDS = 1.0
_THREADS_EACH = 8  # threads that go with each process of the limit
_LOOKING_SHARE = 0.02  # of its time at most is spent on looking


def supervise(request: dict[str, Any], fds: list[int], writer: int, become_runner: Callable[[], None]) -> None:
    """Isolate, fork the runner, watch it, reap everything, end with its status.

    SIGTERM, which also comes when the zygote ends, has it kill the runner first.

    Args:
        request: The zygote's request to spawn.
        fds: The runner's own file descriptors, closed here.
        writer: A pipe to the zygote: the runner's process id or an error, later what was wrong, each in a line.
        become_runner: Called in the runner's process; does not return.
    """
    status = 1
    runner = 0
    told_to_end = False

    def end(_number: int, _frame: Any) -> None:
        nonlocal told_to_end
        told_to_end = True
        if runner:  # not reaped yet, so the id is still the runner's
            os.kill(runner, signal.SIGKILL)

    try:
        os.setsid()
        signal.signal(signal.SIGTERM, end)
        sandbox.die_with_parent(signal.SIGTERM)
        sandbox.become_reaper()
        if request["level"] == "namespaces":
            sandbox.isolate()
        proc = os.stat("/proc").st_dev
        forked = os.fork()
        if forked == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(writer)
            become_runner()
        runner = forked
        if told_to_end:
            os.kill(runner, signal.SIGKILL)
        for fd in fds:
            os.close(fd)
        os.write(writer, f"{runner}\n".encode())
        watch = _Watch(request, runner, writer, proc)
        while True:
            pid, raw = watch.wait()
            if pid == runner:
                runner = 0
                status = os.waitstatus_to_exitcode(raw)
                break
        _end_orphans()
    except OSError as error:
        try:
            os.write(writer, f"{error}\n".encode())
        except OSError:
            pass
    # A negative status is a signal; it is passed on in the shell's way.
    os._exit(status if status >= 0 else 128 - status)


class _Watch:
    """Looks at what the runner has started and written, until it ends."""

    def __init__(self, request: dict[str, Any], runner: int, writer: int, proc: int) -> None:
        self._proc = proc  # the file system at /proc before the runner put its own there
        self._runner = runner
        self._writer = writer
        self._processes: int = request["processes"]
        self._folder = None if request["level"] == "namespaces" else Path(request["scratch"])
        self._files: int = request["scratch_files"]
        self._bytes: int = request["scratch_bytes"]
        self._next_folder = self._next_look = self._cost = 0.0
        self._told = False
        self._pidfd = os.pidfd_open(runner) if hasattr(os, "pidfd_open") else -1

    def wait(self) -> tuple[int, int]:
        """Wait for a child to end; look at the runner while it does not."""
        while True:
            pid, raw = os.waitpid(-1, os.WNOHANG)
            if pid:
                return pid, raw
            self._pause()
            self._look()

    def _pause(self) -> None:
        pause = max(_LOOK_SECONDS, self._cost / _LOOKING_SHARE)
        if self._pidfd >= 0:  # wakes up at once when the runner ends
            select.select([self._pidfd], [], [], pause)
        else:
            time.sleep(min(pause, 0.02))

    def _look(self) -> None:
        if self._told or time.monotonic() < self._next_look:
            return
        begin = time.monotonic()
        found = self._found()
        threads = sum(_threads(pid) for pid in found[: self._processes + 1])
        if len(found) > self._processes or threads > _THREADS_EACH * self._processes:
            self._stop("process_flood", f"{len(found)} processes with {threads} threads or more were running", found)
        elif self._folder is not None and begin >= self._next_folder:
            self._next_folder = begin + _FOLDER_SECONDS
            files, size = _content(self._folder, self._files)
            if files > self._files or size > self._bytes:
                what = f"{files} files or more with {size / 1e6:.0f} MB were written into the scratch folder"
                self._stop("scratch_flood", what, found)
        self._cost = time.monotonic() - begin
        self._next_look = begin + max(_LOOK_SECONDS, self._cost / _LOOKING_SHARE)

    def _found(self) -> list[int]:
        """The processes that the runner consists of, as /proc names them."""
        if os.stat("/proc").st_dev != self._proc:  # the runner's own, which shows its namespace and nothing else
            return [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return _descendants(os.getpid())

    def _stop(self, kind: str, evidence: str, found: list[int]) -> None:
        self._told = True
        os.write(self._writer, f"{kind} {evidence}\n".encode())
        os.kill(self._runner, signal.SIGKILL)  # the first process of its namespace takes all others with it
        if os.stat("/proc").st_dev != self._proc:
            return
        for _attempt in range(50):
            for number in (signal.SIGSTOP, signal.SIGKILL):  # what is stopped starts no more
                for pid in found:
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
            found = [pid for pid in _descendants(os.getpid()) if pid != self._runner and _runs(pid)]
            if not found:
                return


def children_by_parent() -> dict[int, list[int]]:
    """The processes of this system, by the process that is their parent."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            found.setdefault(parent, []).append(int(name))
    return found


def _descendants(pid: int) -> list[int]:
    tree = children_by_parent()
    found: list[int] = []
    todo = [pid]
    while todo:
        inner = tree.get(todo.pop(), [])
        found += inner
        todo += inner
    return found


def _threads(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[17])
    except (OSError, ValueError, IndexError):
        return 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _content(folder: Path, most: int) -> tuple[int, int]:
    """How many files lie below ``folder``, counted until there are more than ``most``, and their bytes on disk."""
    files = size = 0
    for where, _folders, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_blocks * 512
            except OSError:
                continue
            files += 1
        if files > most:
            break
    return files, size


def _end_orphans() -> None:
    """Kill whatever the runner left running; each one's own children come back to us in turn."""
    while True:
        found = children_by_parent().get(os.getpid(), [])
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for pid in found:
            try:
                os.waitpid(pid, 0)
            except OSError:
                pass
