"""Look at a run and keep looking: what every widget shares, whatever it draws.

A widget never raises for what is wrong with a run: it shows the sentence instead, and looks again
when the folder changes, so a run that is repaired, or created, appears by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autokernel import __version__, files
from autokernel.errors import AutokernelError
from autokernel.plaintext import clean
from autokernel.runfolder import Paths, RunFolder
from autokernel.target import FILE

if TYPE_CHECKING:
    from autokernel.session import Session

__all__ = ["Follower", "RunSource", "Unreadable", "stat_of"]

FORMAT = 1  # of the records that this version writes
INTERVAL_SECONDS = 0.1
_DRIVER_SECONDS = 0.5
_BEAT_SECONDS = 2.0
_Result = TypeVar("_Result")


class Unreadable(Exception):
    """Why a run cannot be shown, in a sentence for the person who looks at the widget."""


class RunSource:
    """A run folder as widgets read it.

    Args:
        run: A run folder, its path, or the session that drives it in this process.  Nothing is read yet.
    """

    def __init__(self, run: RunFolder | Session | str | Path) -> None:
        path = getattr(run, "path", run)
        self.session: Any = run if hasattr(run, "keep") and hasattr(run, "folder") else None
        self.path = Path(path if isinstance(path, (str, Path)) else str(path)).expanduser().absolute()
        self._folder: RunFolder | None = None
        self._target: object = None
        self._driver: tuple[float, object] = (0.0, None)

    @classmethod
    def of(cls, run: RunSource | RunFolder | Session | str | Path) -> RunSource:
        """The source of a run; widgets that show one run together share one, and so read each file once."""
        return run if isinstance(run, RunSource) else cls(run)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    def read(self, what: Callable[[RunFolder], _Result]) -> _Result:
        """Return what ``what`` reads from the folder.

        Raises:
            Unreadable: It cannot be read; the message says why and what to do.
        """
        return self.guard(lambda: what(self._opened()))

    def _opened(self) -> RunFolder:
        target = stat_of(self.path / FILE)
        if self._folder is None or self._target != target:
            self._target = target
            self._folder = RunFolder(self.path)
            self._folder.experiments  # noqa: B018 - reads the journal, which may be of another version
        return self._folder

    def guard(self, make: Callable[[], _Result]) -> _Result:
        """Return what ``make`` makes of the run's files.

        Raises:
            Unreadable: They hold something else than this version expects.
        """
        try:
            return make()
        except AutokernelError as error:
            self._folder = None
            raise Unreadable(clean(error)) from None
        except Unreadable:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            self._folder = None  # its reader may have stopped half way
            raise Unreadable(
                f"{self.path} cannot be read by AutoKernel {__version__} ({type(error).__name__}: {clean(error)}); "
                "it may be damaged, or be of a newer version: try that version, or `autokernel status` on it"
            ) from None

    def record(self, number: int) -> dict[str, Any]:
        """The full record of an experiment.

        Raises:
            Unreadable: It cannot be read, or a newer version wrote it.
        """
        record = self.read(lambda folder: folder.record(number))
        written = record.get("format", FORMAT)
        if not isinstance(written, int) or written > FORMAT:
            raise Unreadable(
                f"the record of experiment {number} has format {written!r}, and AutoKernel {__version__} reads up to "
                f"{FORMAT}: a newer version wrote it; pip install --upgrade autokernel"
            )
        return record

    def fingerprint(self) -> tuple[object, ...]:
        """Differs whenever something about the run may have changed; costs a few calls of `stat`."""
        paths = Paths(self.path)
        watched = (self.path / FILE, paths.journal, paths.events, paths.results, paths.commands)
        now = time.monotonic()
        if now - self._driver[0] >= _DRIVER_SECONDS:  # asking takes the lock for an instant, so it is not done often
            self._driver = now, (files.driver_of(paths.lock) or {}).get("pid")
        return (*map(stat_of, watched), self._driver[1])


def stat_of(path: Path) -> object:
    """What differs when a file has changed: its size, time and inode; None where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _as_widget(follower: Follower) -> Any:
    """The widget that the follower is mixed into, whose traits are not known here."""
    return follower


class Follower:
    """Mixed into a widget: refreshes it while its run goes on.

    The widget has ``_source`` (a `RunSource`) and ``refresh()``, and may have a trait ``beat``, which
    tells its view that the notebook kernel still listens.
    """

    _source: RunSource

    def refresh(self) -> bool:
        """Show what the run folder holds now; True if that differed from what was shown."""
        raise NotImplementedError

    def _begin(self, live: bool) -> None:
        """Start to follow in the event loop that runs here, if ``live`` and one runs (in a notebook it does)."""
        self._thread = threading.get_ident()
        self._task: asyncio.Task[None] | None = None
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        if live and self._loop is not None:
            self._task = self._loop.create_task(self.follow(interval_seconds=INTERVAL_SECONDS))

    async def follow(self, *, interval_seconds: float = 0.5, seconds: float | None = None) -> None:
        """Keep the widget up to date: for so many seconds, or until the task is cancelled."""
        loop, widget = asyncio.get_running_loop(), _as_widget(self)
        end = None if seconds is None else loop.time() + seconds
        seen: object = None
        beaten = 0.0
        while getattr(widget, "comm", True) is not None:  # a closed widget has no comm
            with contextlib.suppress(OSError):
                now = self._source.fingerprint()
                if now != seen:
                    self.refresh()
                    seen = now
            if loop.time() - beaten >= _BEAT_SECONDS and hasattr(widget, "beat"):
                widget.beat, beaten = widget.beat + 1, loop.time()
            if end is not None and loop.time() >= end:
                return
            await asyncio.sleep(max(0.1, interval_seconds))  # a browser drains about ten updates a second

    def unfollow(self) -> None:
        """Stop following; the widget keeps what it shows."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _in_loop(self, work: Callable[[], None]) -> None:
        """Do what a click asks for in the thread of the event loop; some kernels hear clicks in another one."""
        if self._loop is not None and self._loop.is_running() and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(work)
        else:
            work()
