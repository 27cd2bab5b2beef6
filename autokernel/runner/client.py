"""The judge's side of a runner: start it, ask it, and end it whatever it does.

A `Zygote` is started once per device; `Zygote.spawn` hands out `Runner` objects in milliseconds.
Every request has a deadline that is enforced from here, by killing everything the runner started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from autokernel.errors import RunnerLost
from autokernel.runner import protocol, sandbox
from autokernel.runner.supervisor import children_by_parent

__all__ = ["Limits", "Runner", "RunnerDied", "Zygote"]

_ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What a runner may use.

    Attributes:
        memory_bytes: Address space beyond what torch maps itself; on a GPU, host memory is not
            limited this way, because the driver reserves more addresses than the machine has memory.
        file_bytes: The largest file that it may write.
        output_bytes: More text than this on its standard output is a finding.
        processes: Processes that it may have at a time, and an eighth of the threads; with more it is ended.
        scratch_bytes: What its scratch folder may hold, compilers' caches included.
        scratch_files: How many files its scratch folder may hold.
        start_seconds: Until the runner is up, the device initialised.
        load_seconds: For importing the kernel file.
        call_seconds: For one call, compilation at the first call included.
        timing_seconds: For one request of the paired timing.
        total_seconds: For all stages of one verification.
    """

    memory_bytes: int = 8 << 30
    file_bytes: int = 256 << 20
    output_bytes: int = 1 << 20
    processes: int = 256
    scratch_bytes: int = 2 << 30
    scratch_files: int = 20_000
    start_seconds: float = 120.0
    load_seconds: float = 30.0
    call_seconds: float = 60.0
    timing_seconds: float = 120.0
    total_seconds: float = 1800.0


class RunnerDied(Exception):
    """The runner ended or had to be ended; ``timed_out`` tells which, the message says how."""

    def __init__(self, message: str, *, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Zygote:
    """The process from which runners are forked.  Use as a context manager, from any one thread at a time.

    Args:
        device: ``cpu`` or ``cuda:0``; where the runners execute.
        level: Isolation level, one of `sandbox.LEVELS`; the strongest available when None.
        needed: Files that runners must be able to read even if they lie in a home folder.
    """

    def __init__(self, device: str, *, level: str | None = None, needed: Iterable[Path] = ()) -> None:
        self.device = device
        packages = [path for path in sys.path if path and path.endswith("-packages")]
        self._needed = [str(path) for path in (_ROOT, sys.prefix, sys.base_prefix, *packages, *needed)]
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        self._control = ours
        search = [str(_ROOT), *packages]
        self._folder = tempfile.mkdtemp(prefix="autokernel-")
        environment = sandbox.clean_environment(Path(self._folder), {"PYTHONPATH": os.pathsep.join(search)})
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autokernel.runner.zygote", str(theirs.fileno()), device, self._folder],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            start_new_session=True,
        )
        theirs.close()
        self._level: str | None = level

    @property
    def level(self) -> str:
        """The isolation level in force; waits for the zygote to be up."""
        self._wait_ready()
        assert self._level is not None
        return self._level

    _ready = False

    def _wait_ready(self) -> None:
        if self._ready:
            return
        try:
            answer, _fds = protocol.receive(self._control, seconds=180)
        except (protocol.Closed, protocol.DeadlinePassed) as error:
            self._errors.seek(0)
            tail = self._errors.read()[-2000:].decode(errors="replace")
            raise RunnerLost(f"the runner's zygote did not start ({error or 'no answer in 180 s'}): {tail}") from None
        self._level = self._level or answer["level"]
        self._ready = True

    def spawn(self, limits: Limits) -> Runner:
        """Fork a runner.  It initialises its device while the caller does other things."""
        with self._lock:
            self._wait_ready()
            scratch = Path(tempfile.mkdtemp(prefix="autokernel-"))
            ours, theirs = socket.socketpair()
            arena = protocol.Arena()
            environment = sandbox.clean_environment(scratch, {"TRITON_INTERPRET": "1"} if self.device == "cpu" else {})
            request = {
                "op": "spawn",
                "scratch": str(scratch),
                "environment": environment,
                "needed": self._needed,
                "homes": sandbox.home_folders(),
                "level": self._level,
                # The arena's mapping counts as address space, its untouched pages cost nothing.
                "address_space": limits.memory_bytes + protocol.ARENA_BYTES if self.device == "cpu" else None,
                "file_bytes": limits.file_bytes,
                "processes": limits.processes,
                "scratch_bytes": limits.scratch_bytes,
                "scratch_files": limits.scratch_files,
            }
            try:
                protocol.send(self._control, request, [theirs.fileno(), arena.fd])
                answer, _fds = protocol.receive(self._control, seconds=60)
            except (protocol.Closed, protocol.DeadlinePassed) as error:
                raise RunnerLost(f"the runner's zygote is gone ({error}); start a new evaluator") from None
            theirs.close()
            if answer["pid"] is None:
                raise RunnerLost(f"no runner could be forked: {answer['error']}")
            return Runner(self, answer["pid"], answer["supervisor"], ours, arena, scratch, limits)

    def reap(self, supervisor: int, seconds: float) -> dict[str, Any]:
        """Wait for a supervisor; kill it after ``seconds``.  Return its status."""
        with self._lock:
            try:
                protocol.send(self._control, {"op": "reap", "pid": supervisor, "seconds": seconds})
                answer, _fds = protocol.receive(self._control, seconds=seconds + 30)
            except (protocol.Closed, protocol.DeadlinePassed):
                return {"status": None, "why": ""}
            return dict(answer)

    def end(self, supervisor: int) -> None:
        """Kill a supervisor, and with it its runner, without waiting until they are gone."""
        with self._lock, contextlib.suppress(protocol.Closed):
            protocol.send(self._control, {"op": "end", "pid": supervisor})

    def is_alive(self) -> bool:
        """Whether the zygote's process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the zygote and every runner it started, also while another thread waits for one."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:  # still importing
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._control.close()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class Runner:
    """One runner process with its arena and scratch folder.  Made by `Zygote.spawn`."""

    def __init__(
        self,
        zygote: Zygote,
        pid: int,
        supervisor: int,
        sock: socket.socket,
        arena: protocol.Arena,
        scratch: Path,
        limits: Limits,
    ) -> None:
        self.pid = pid
        self.arena = arena
        self.scratch = scratch
        self.limits = limits
        self.facts: dict[str, Any] = {}
        self._zygote = zygote
        self._supervisor = supervisor
        self._socket = sock
        self._dead: RunnerDied | None = None
        self.flood: tuple[str, str] | None = None  # kind and evidence, if the supervisor ended it over a limit

    def wait_ready(self) -> None:
        """Wait until the runner has its device; it must not have been asked anything yet.

        Raises:
            RunnerLost: It did not come up, or has ended since, which is no candidate's fault.
        """
        try:
            if not self.facts:
                self.facts, _fds = protocol.receive(self._socket, seconds=self.limits.start_seconds)
            if select.select([self._socket], [], [], 0)[0]:
                raise protocol.Closed("it ended while it waited for a candidate")
        except (protocol.Closed, protocol.DeadlinePassed) as error:
            output = self.output()
            self.close()
            raise RunnerLost(f"the runner did not start ({error or 'no answer'}): {output[-1500:]}") from None

    def ask(
        self, request: dict[str, Any], *, seconds: float, doing: str, meanwhile: Callable[[], object] | None = None
    ) -> dict[str, Any]:
        """Send a request and return the answer.

        Args:
            request: See `autokernel.runner.child`.
            seconds: The deadline.
            doing: What the runner is doing, for the message of an error: "importing kernel.py".
            meanwhile: Called here while the runner works; the deadline is not extended by it.

        Raises:
            RunnerDied: It ended, was killed by a signal, or passed the deadline and was killed.
            RunnerLost: It ended because the zygote did, which is no candidate's fault.
        """
        if self._dead is not None:
            raise self._dead
        if not self.facts:
            self.wait_ready()
        begin = time.monotonic()
        try:
            protocol.send(self._socket, request)
            if meanwhile is not None:
                meanwhile()
            left = max(seconds - (time.monotonic() - begin), 0.1)
            answer, _fds = protocol.receive(self._socket, seconds=left)
            if isinstance(answer, dict) and "ok" in answer:
                return answer
            raise protocol.Closed("an answer that follows no protocol")
        except protocol.DeadlinePassed:
            self._end(0.0)
            self._dead = RunnerDied(f"no end after {seconds:.0f} s while {doing}; killed", timed_out=True)
        except protocol.Closed:
            status = self._end(2.0)
            took = time.monotonic() - begin
            if not self._zygote.is_alive():
                raise RunnerLost(f"the runner's zygote ended while the runner was {doing}") from None
            how = f"{self.flood[1]}, so they were ended" if self.flood else self._how_ended(status)
            self._dead = RunnerDied(f"{how} after {took:.1f} s while {doing}", timed_out=False)
        raise self._dead

    @staticmethod
    def _how_ended(status: int | None) -> str:
        if status is None:
            return "the process vanished"
        if status > 128:
            number = status - 128
            name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
            return f"the process was ended by {name}"
        return f"the process left with exit status {status}"

    def _end(self, seconds: float) -> int | None:
        self._socket.close()
        answer = self._zygote.reap(self._supervisor, seconds)
        status = answer["status"]
        kind, _space, evidence = str(answer["why"]).partition(" ")
        if kind in ("process_flood", "scratch_flood"):
            self.flood = (kind, evidence)
        return None if status is None else int(status)

    def cpu_seconds(self) -> float:
        """Processor time that the runner has used so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Private memory that the runner holds, the arena not counted; 0 when it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        except OSError:
            return 0
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")

    def descendants(self) -> list[str]:
        """Command lines of processes that the runner started and that still run."""
        found = []
        # The runner's orphans become children of the supervisor, or of the runner as first process.
        children = children_by_parent()
        todo = [pid for pid in (*children.get(self.pid, ()), *children.get(self._supervisor, ())) if pid != self.pid]
        while todo:
            pid = todo.pop()
            todo += children.get(pid, [])
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                command = ""
            found.append(f"{pid} {command.strip()[:100]}")
        return found

    def output_bytes(self) -> int:
        """How much text the runner has printed."""
        try:
            return (self.scratch / "output.txt").stat().st_size
        except OSError:
            return 0

    def output(self, limit: int = 4000) -> str:
        """The end of what the runner has printed."""
        try:
            with open(self.scratch / "output.txt", "rb") as handle:
                handle.seek(max(0, self.output_bytes() - limit))
                return handle.read(limit).decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End the runner and remove its scratch folder."""
        if self._dead is None:
            self._dead = RunnerDied("closed", timed_out=False)
            self._socket.close()
            self._zygote.end(self._supervisor)
        self.arena.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
