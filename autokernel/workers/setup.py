"""What a worker does first, before PyTorch is loaded.

Dask imports this module in a worker when it starts (``--preload autokernel.workers.setup``).
"""

from __future__ import annotations

import os
import signal

__all__ = ["dask_setup", "free_threads"]

_CAPS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def dask_setup(worker: object) -> None:
    """Called by Dask with its worker.

    Ctrl-C is left to the process that drives the run: a terminal sends it to the workers too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    free_threads()


def free_threads() -> None:
    """Undo Dask's cap of one thread for each worker, which the processes that run kernels would inherit.

    On a CPU, PyTorch's baseline would be timed on one core then, and each speedup over it would be too large.
    """
    for name in _CAPS:
        if os.environ.get(name) == "1":
            del os.environ[name]
