"""What a local worker does first: it leaves Ctrl-C to the process that drives the run.

Dask imports this module in a worker when it starts (its ``preload``).
"""

from __future__ import annotations

import signal

__all__ = ["dask_setup"]


def dask_setup(worker: object) -> None:
    """Called by Dask with its worker; a terminal sends Ctrl-C to that process too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
