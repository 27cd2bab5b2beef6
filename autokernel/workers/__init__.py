"""Judging on several devices and hosts, through Dask (``pip install 'autokernel[dask]'``).

`evaluator` is the judge that the loop sees, `bench` what happens on a worker, `wire` what goes between
them (text, both ways), `pool` where workers come from.  Dask is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autokernel.workers.evaluator import DaskEvaluator
    from autokernel.workers.pool import open_workers

__all__ = ["DaskEvaluator", "open_workers"]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used, because a worker that starts needs neither."""
    if name == "DaskEvaluator":
        from autokernel.workers.evaluator import DaskEvaluator

        return DaskEvaluator
    if name == "open_workers":
        from autokernel.workers.pool import open_workers

        return open_workers
    raise AttributeError(f"module 'autokernel.workers' has no attribute {name!r}")
