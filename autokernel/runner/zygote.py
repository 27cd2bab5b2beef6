"""The zygote: imports torch and triton once, then forks a runner for each candidate.

    python -m autokernel.runner.zygote FD DEVICE FOLDER

``FD`` is a Unix socket to the judge, ``FOLDER`` the zygote's own folder, removed when it ends.  A
request ``{"op": "spawn", ...}`` comes with the runner's own socket and arena; the answer holds two
process ids.  Between the zygote and the runner stands a supervisor: it lives outside the runner's
namespaces, reaps what the runner leaves behind, and ends with the runner's exit status.  The zygote
itself never runs a candidate and never touches the GPU.
"""

from __future__ import annotations

import contextlib
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
            return {"status": None}
        if done:
            return {"status": os.waitstatus_to_exitcode(status)}
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
        _supervise(request, fds, writer, device)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.readline().strip()
    return {"supervisor": supervisor, "pid": int(text) if text.isdigit() else None, "error": text}


def _supervise(request: dict[str, Any], fds: list[int], writer: int, device: str) -> None:
    """Become the supervisor: isolate, fork the runner, reap everything, end with its status.

    SIGTERM, which also comes when the zygote ends, has it kill the runner first.
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
        forked = os.fork()
        if forked == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(writer)
            _become_runner(request, fds, device)
        runner = forked
        if told_to_end:
            os.kill(runner, signal.SIGKILL)
        for fd in fds:
            os.close(fd)
        os.write(writer, f"{runner}\n".encode())
        os.close(writer)
        while True:
            pid, raw = os.waitpid(-1, 0)
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


def _end_orphans() -> None:
    """Kill whatever the runner left running; each one's own children come back to us in turn."""
    me = os.getpid()
    while True:
        children = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, ValueError, IndexError):
                    continue
                if parent == me:
                    children.append(int(entry.name))
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for pid in children:
            try:
                os.waitpid(pid, 0)
            except OSError:
                pass


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
        os.chdir(scratch)
        tempfile.tempdir = None  # the zygote may have settled on a folder that is read-only here
        output = os.open(scratch / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
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
