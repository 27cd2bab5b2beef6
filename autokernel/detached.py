"""Starts processes that outlive the notebook or terminal that began them, such as one that drives a run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from autokernel import agents, files
from autokernel.errors import RunBusy
from autokernel.events import Commands
from autokernel.runfolder import RunFolder

__all__ = ["spawn", "start"]


def spawn(
    folder: RunFolder,
    *,
    experiments: int = 20,
    minutes: float | None = None,
    approval: str | None = None,
    workers: str | None = None,
) -> int:
    """Start ``autokernel run`` on a run, in its own session and with its output in ``.autokernel/driver.log``.

    Args:
        folder: The run.
        experiments: How many to make.
        minutes: Begin none after so many.
        approval: ``auto`` or ``approve``; None for what target.toml says.
        workers: Where to judge, as in ``autokernel run --workers``; in that process itself when None.

    Returns:
        The process id.  Whether it took the run over, `RunFolder.status` says.

    Raises:
        RunBusy: A process drives the run already.
        UsageError: The run's agent lacks something, such as a key.
        RunUnwritable: The log cannot be written.
    """
    driver = files.driver_of(folder.paths.lock)
    if driver is not None:
        who = f"process {driver.get('pid', '?')} on {driver.get('host', '?')}"
        raise RunBusy(f"{folder.path} is being driven by {who}; close that session or stop it first")
    agents.ready(folder.target.agent, folder.path)
    commands = Commands(folder.paths.commands)
    for command in commands.waiting()[0]:
        if command.kind == "stop":  # it was for a process that has ended
            commands.discard(command)
    call = [sys.executable, "-m", "autokernel.cli", "run", str(folder.path), "--experiments", str(experiments)]
    call += [] if minutes is None else ["--minutes", str(minutes)]
    call += [] if approval is None else ["--approval", approval]
    call += [] if workers is None else ["--workers", workers]
    return start(call, folder.paths.log).pid


def start(call: Sequence[str], log_file: Path) -> subprocess.Popen[bytes]:
    """Start a command of this package in a session of its own, with its output at the end of a log.

    Raises:
        RunUnwritable: The log cannot be written.
    """
    package = str(Path(__file__).parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    with files.writable(log_file), open(log_file, "ab") as log:
        process = subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie
    return process
