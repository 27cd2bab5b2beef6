"""Judging on several devices and hosts, through Dask (``pip install 'autokernel[dask]'``).

`evaluator` is the judge that the loop sees, `bench` what happens on a worker, `wire` what goes between
them (text, both ways), `pool` where workers come from.  Dask is imported when it is first used.
"""

from __future__ import annotations

from autokernel.workers.evaluator import DaskEvaluator
from autokernel.workers.pool import open_workers

__all__ = ["DaskEvaluator", "open_workers"]
