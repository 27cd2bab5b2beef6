"""Start a run from a notebook: in a process of its own, or in the notebook's own event loop."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autokernel import files
from autokernel.errors import AutokernelError, RunDamaged, UsageError
from autokernel.plaintext import clean
from autokernel.runfolder import Paths
from autokernel.target import FILE, Target
from autokernel_widgets.deciding import driver_words
from autokernel_widgets.following import RunSource

__all__ = ["PLACES", "Driver", "last_lines", "set_approval"]

PLACES = {"detached": "in a process of its own", "notebook": "in this notebook"}
_APPROVAL = re.compile(r"^approval[ \t]*=[^\n]*$", re.MULTILINE)


class Driver:
    """Starts and steps one run; pausing and stopping are commands that any window may send.

    Args:
        source: The run.
        loop: The notebook's event loop, or None where there is none.
        changed: Called when a drive in this notebook ended.
    """

    def __init__(
        self, source: RunSource, loop: asyncio.AbstractEventLoop | None, changed: Callable[[], object] = lambda: None
    ) -> None:
        self._source = source
        self._loop = loop
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.said = ""
        """What went wrong with the last start, or ""."""

    @property
    def busy(self) -> bool:
        """True while this notebook makes experiments."""
        return self._task is not None and not self._task.done()

    @property
    def starting(self) -> bool:
        """True from a detached start until that process drives the run, or has ended."""
        return self._watch is not None and not self._watch.done()

    def start(self, experiments: int, place: str, approval: str) -> str:
        """Make experiments; returns what was begun, in a sentence.

        Args:
            experiments: How many, at least 1.
            place: A key of `PLACES`.
            approval: ``auto`` or ``approve``.

        Raises:
            UsageError: It runs already, or a value is unknown.
            AutokernelError: The run cannot be opened.
            Unreadable: The run cannot be read.
        """
        from autokernel.session import Session

        if place not in PLACES:
            raise UsageError(f"cannot run in {place!r}; use {' or '.join(PLACES)}")
        if experiments < 1:
            raise UsageError(f"{experiments} experiments are none; ask for at least one")
        driver = self._source.read(lambda folder: folder.status.driver)
        mine = self._mine(driver)
        if self.starting:
            raise UsageError("a process is starting already; wait a moment")
        if self.busy or (driver is not None and not mine):
            who = "this notebook" if driver is None else driver_words(driver)
            raise UsageError(f"{who} drives the run already; stop it first")
        self._resume()
        self.said = ""
        if mine:
            return self._drive(self._source.session, experiments, close=False)
        if place == "detached":
            process = Session.spawn_detached(self._source.path, experiments=experiments, approval=approval)
            if self._loop is not None:
                self._watch = self._loop.create_task(self._see_it_start(process))
            return "a process of its own is starting; it goes on when this notebook is closed"
        if self._loop is None:
            raise UsageError("no event loop runs here, so the run cannot be driven here; start it detached")
        return self._drive(Session.open(self._source.path, approval=approval), experiments, close=True)

    def _drive(self, session: Any, experiments: int, *, close: bool) -> str:
        if self._loop is None:
            raise UsageError("no event loop runs here, so the run cannot be driven here; start it detached")
        self._task = self._loop.create_task(self._run(session, experiments, close))
        return "this notebook makes the experiments; other cells can be run meanwhile"

    async def _run(self, session: Any, experiments: int, close: bool) -> None:
        try:
            await session.run(experiments=experiments)
        except AutokernelError as error:
            self.said = f"it ended: {clean(error, limit=1000)}"
        except Exception as error:  # an agent's own error would be lost with the task
            self.said = f"it ended with an error: {type(error).__name__}: {clean(error, limit=1000)}"
        finally:
            if close:
                await asyncio.to_thread(session.close)
            self._changed()

    async def _see_it_start(self, process: int) -> None:
        """Wait until the process drives the run; if it ends before, say what it wrote last."""
        while _is_alive(process) and self._source.read(lambda folder: folder.status.driver) is None:
            await asyncio.sleep(0.2)
        log = Paths(self._source.path).log
        if not _is_alive(process):
            lines = await asyncio.to_thread(last_lines, log)
            self.said = f"the process ended at once ({log}): {clean(lines, limit=600)}"
        asyncio.get_running_loop().call_soon(self._changed)  # when this task is done

    def _mine(self, driver: Any) -> bool:
        session = self._source.session
        return session is not None and driver is not None and driver_words(driver) == "this notebook"

    def _resume(self) -> None:
        """A run that was paused would start and wait; whoever says Start wants it to go on."""
        if self._source.read(lambda folder: folder.status.state) == "paused":
            self._source.read(lambda folder: folder.send("resume", by="person"))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def last_lines(log: Path) -> str:
    """The end of a log, which may be long."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-4:])
    except OSError as error:
        return f"its log cannot be read: {error}"


def set_approval(path: Path, approval: str) -> None:
    """Write who decides into the run's target.toml; it counts from the next start.

    Raises:
        UsageError: Neither ``auto`` nor ``approve``.
        RunDamaged: The file cannot be read.
        RunUnwritable: It cannot be written.
    """
    if approval not in ("auto", "approve"):
        raise UsageError(f"approval is {approval!r}; use 'auto' or 'approve'")
    Target.load(path)
    text = (path / FILE).read_text(encoding="utf-8")
    changed, count = _APPROVAL.subn(f'approval = "{approval}"', text, count=1)
    if not count:
        changed = f'approval = "{approval}"\n{text}'
    if Target.from_toml(changed).approval != approval:
        raise RunDamaged(f"{path / FILE} cannot be changed safely; set approval = {approval!r} in it by hand")
    files.write_atomic(path / FILE, changed)
