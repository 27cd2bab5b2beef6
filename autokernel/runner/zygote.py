"""The zygote: imports torch and triton once, then forks a runner for each candidate.

    python -m autokernel.runner.zygote FD DEVICE FOLDER

``FD`` is a Unix socket to the judge, ``FOLDER`` the zygote's own folder, removed when it ends.  A
request ``{"op": "spawn", ...}`` comes with the runner's own socket and arena; the answer holds two
process ids.  Between the zygote and the runner stands a `supervisor`.  The zygote itself never runs
a candidate and never touches the GPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from autokernel.runner import protocol, sandbox
from autokernel.runner.supervisor import supervise

__all__ = ["main"]


def main() -> None:
    """Serve the judge until it closes the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    device = sys.argv[2]
    from autokernel.runner import child  # imports torch and triton, once for all runners

    child.preload(device)
    protocol.send(control, {"ready": True, "level": sandbox.level()})
    scratches: dict[int, str] = {}  # of every supervisor that the judge has not seen the end of
    ending: dict[int, float] = {}  # those that were told to end, and until when they have time for it
    while True:
        while ending and not select.select([control], [], [], 0.02)[0]:
            _clean_up(ending, scratches)
        try:
            request, fds = protocol.receive(control, max_fds=2)
        except protocol.Closed:
            break
        if request["op"] == "spawn":
            answer = _spawn(request, fds, control, device)
            for fd in fds:
                os.close(fd)
            scratches[answer["supervisor"]] = request["scratch"]
            protocol.send(control, answer)
        elif request["op"] == "reap":
            protocol.send(control, _reap(request["pid"], request["seconds"]))
            scratches.pop(request["pid"], None)
        elif request["op"] == "end":
            _tell_to_end(request["pid"], ending)
        _clean_up(ending, scratches)
    for pid in scratches:
        if pid not in ending:
            _tell_to_end(pid, ending)
    deadline = time.monotonic() + 3.0
    while ending and time.monotonic() < deadline:
        _clean_up(ending, scratches)
        time.sleep(0.002)
    shutil.rmtree(sys.argv[3], ignore_errors=True)
    os._exit(0)


def _tell_to_end(pid: int, ending: dict[int, float]) -> None:
    ending[pid] = time.monotonic() + 2.0
    os.kill(pid, signal.SIGTERM)


def _clean_up(ending: dict[int, float], scratches: dict[int, str]) -> None:
    """Reap the supervisors that have ended, and remove what their runners wrote until the end."""
    for pid, deadline in list(ending.items()):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del ending[pid]
            _last_words(pid)
            shutil.rmtree(scratches.pop(pid), ignore_errors=True)
        elif time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)  # its runner dies with it, by the signal of its parent's death


def _reap(pid: int, seconds: float) -> dict[str, Any]:
    """Wait for a supervisor to end; when the time is over have it kill its runner, or else kill it too."""
    deadline = time.monotonic() + seconds
    signals = [signal.SIGKILL, signal.SIGTERM]
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return {"status": None, "why": _last_words(pid)}
        if done:
            return {"status": os.waitstatus_to_exitcode(status), "why": _last_words(pid)}
        if time.monotonic() > deadline and signals:
            os.kill(pid, signals.pop())
            deadline += 5.0
        time.sleep(0.002)


def _spawn(request: dict[str, Any], fds: list[int], control: socket.socket, device: str) -> dict[str, Any]:
    reader, writer = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(reader)
        control.close()
        supervise(request, fds, writer, functools.partial(_become_runner, request, fds, device))
    os.close(writer)
    text = _line(reader)
    _pipes[supervisor] = reader
    return {"supervisor": supervisor, "pid": int(text) if text.isdigit() else None, "error": text}


_pipes: dict[int, int] = {}  # from each supervisor


def _line(reader: int) -> str:
    """Read a line, or what there is at the end of the pipe; byte by byte, so that nothing is read ahead."""
    text = b""
    while (byte := os.read(reader, 1)) not in (b"", b"\n"):
        text += byte
    return text.decode(errors="replace").strip()


def _last_words(supervisor: int) -> str:
    """What a supervisor that has ended wrote after the runner's process id, or ""."""
    reader = _pipes.pop(supervisor, None)
    if reader is None:
        return ""
    text = _line(reader)
    os.close(reader)
    return text


def _become_runner(request: dict[str, Any], fds: list[int], device: str) -> None:
    status = 1
    try:
        os.setsid()  # else a signal to its group would reach the supervisor
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # the first to go when memory runs out
        scratch = Path(request["scratch"])
        os.environ.clear()
        os.environ.update(request["environment"])
        # Before any file is opened for writing: a mount with one cannot become read-only.
        needed, homes = ([Path(path) for path in request[name]] for name in ("needed", "homes"))
        sandbox.confine_files(request["level"], scratch, needed, homes)
        tempfile.tempdir = None  # the zygote may have settled on a folder that is read-only here
        output = os.open(scratch / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        if request["level"] == "namespaces":  # after the output's file, which the judge reads outside
            sandbox.limit_folder(scratch, size=request["scratch_bytes"], files=request["scratch_files"])
        os.chdir(scratch)
        sandbox.drop_privileges()
        sandbox.die_with_parent()
        sandbox.limit_resources(address_space=request["address_space"], file_bytes=request["file_bytes"])
        from autokernel.runner import child

        child.serve(socket.socket(fileno=fds[0]), protocol.Arena(fds[1]), device, scratch)
        status = 0
    except BaseException as error:
        import traceback

        traceback.print_exc()
        print(f"runner: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
