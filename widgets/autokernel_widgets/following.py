"""Keep a view up to date with a run that another task or process drives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from autokernel.runfolder import RunFolder

__all__ = ["follow", "folder_of"]


def folder_of(run: RunFolder | str | Path) -> RunFolder:
    """The view of a run, from its path or as it is.

    Raises:
        UsageError: The folder is no run.
    """
    return run if isinstance(run, RunFolder) else RunFolder(run)


async def follow(refresh: Callable[[], bool], *, interval_seconds: float, seconds: float | None) -> None:
    """Call ``refresh`` every ``interval_seconds``; ends after ``seconds``, or when the task is cancelled."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    while True:
        refresh()
        if end is not None and loop.time() >= end:
            return
        await asyncio.sleep(max(0.1, interval_seconds))  # a browser drains about ten updates a second
