"""Start, pause and stop a campaign from a notebook: in a process of its own, or in the notebook's own event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autokernel import detached
from autokernel.errors import AutokernelError, UsageError
from autokernel.plaintext import clean
from autokernel.runfolder import Paths
from autokernel_widgets.campaign_source import CampaignSource
from autokernel_widgets.deciding import driver_words
from autokernel_widgets.driving import PLACES, last_lines, set_approval

__all__ = ["CampaignDriver"]


class CampaignDriver:
    """Starts one campaign; pausing and stopping are commands that any window may send.

    Args:
        source: The campaign.
        loop: The notebook's event loop, or None where there is none.
        changed: Called when a drive in this notebook ended, or a process that was started drives the campaign.
    """

    def __init__(
        self, source: CampaignSource, loop: asyncio.AbstractEventLoop | None, changed: Callable[[], object]
    ) -> None:
        self._source, self._loop, self._changed = source, loop, changed
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.said = ""
        """What went wrong with the last start, or ""."""

    @property
    def busy(self) -> bool:
        """True while this notebook drives the campaign."""
        return self._task is not None and not self._task.done()

    @property
    def starting(self) -> bool:
        """True from a detached start until that process drives the campaign, or has ended."""
        return self._watch is not None and not self._watch.done()

    def start(self, experiments: int, place: str) -> str:
        """Work on the targets in turns; returns what was begun, in a sentence.

        Args:
            experiments: How many, over all targets; at least 1.
            place: A key of `driving.PLACES`.

        Raises:
            UsageError: It is driven already, or a value is unknown.
            Unreadable: The campaign cannot be read.
        """
        if place not in PLACES:
            raise UsageError(f"cannot run in {place!r}; use {' or '.join(PLACES)}")
        if experiments < 1:
            raise UsageError(f"{experiments} experiments are none; ask for at least one")
        if self.starting:
            raise UsageError("a process is starting already; wait a moment")
        driver = self._source.campaign().driver
        if self.busy or driver is not None:
            who = "this notebook" if self.busy or driver is None else driver_words(driver)
            raise UsageError(f"{who} drives the campaign already; stop it first")
        self.resume()
        self.said = ""
        if place == "detached":
            process = _spawn(self._source.path, experiments)
            if self._loop is not None:
                self._watch = self._loop.create_task(self._see_it_start(process))
            return "a process of its own is starting; it goes on when this notebook is closed"
        if self._loop is None:
            raise UsageError("no event loop runs here, so the campaign cannot be driven here; start it detached")
        self._task = self._loop.create_task(self._run(experiments))
        return "this notebook makes the experiments; other cells can be run meanwhile"

    def pause(self) -> str:
        """Let the campaign wait after the experiment in progress; every run is told, as any may be the next."""
        for run in self._source.campaign().runs.values():
            run.send("pause", by="person")
        return "it pauses after the experiment in progress"

    def resume(self) -> str:
        """Take back every pause, carried out or not."""
        for run in self._source.campaign().runs.values():
            kinds = {command.kind for command in run.waiting_commands}
            if "pause" in kinds or run.status.state in ("paused", "waiting"):  # one that waits may be paused, too
                run.send("resume", by="person")
        return "it goes on"

    def stop(self) -> str:
        """Let the campaign end after the experiment in progress, whatever process drives it."""
        self._source.campaign().stop()
        return "it stops after the experiment in progress"

    def ask(self, approval: str) -> None:
        """Write who decides into the target.toml of every run: ``auto`` or ``approve``."""
        for run in self._source.campaign().runs.values():
            set_approval(run.path, approval)

    async def _run(self, experiments: int) -> None:
        from autokernel.campaign import Campaign

        try:
            campaign: Any = self._source.given or Campaign(self._source.path)
            await campaign.run(experiments=experiments)
        except AutokernelError as error:
            self.said = f"it ended: {clean(error, limit=1000)}"
        except Exception as error:  # an agent's own error would be lost with the task
            self.said = f"it ended with an error: {type(error).__name__}: {clean(error, limit=1000)}"
        finally:
            asyncio.get_running_loop().call_soon(self._changed)  # when this task is done

    async def _see_it_start(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process drives the campaign; if it ends before, say what it wrote last."""
        before = len(self._source.campaign().events())
        while process.poll() is None and self._source.campaign().driver is None:
            await asyncio.sleep(0.2)
        if process.poll() is not None and len(self._source.campaign().events()) == before:
            log = Paths(self._source.path).log
            lines = await asyncio.to_thread(last_lines, log)
            self.said = f"the process ended at once ({log}): {clean(lines, limit=600)}"
        asyncio.get_running_loop().call_soon(self._changed)


def _spawn(path: Path, experiments: int) -> subprocess.Popen[bytes]:
    """Start ``autokernel campaign run`` in its own session, with its output in ``.autokernel/driver.log``."""
    call = [sys.executable, "-m", "autokernel.cli", "campaign", "run", str(path), "--experiments", str(experiments)]
    return detached.start(call, Paths(path).log)
