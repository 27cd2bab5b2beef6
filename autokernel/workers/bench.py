"""The worker's side: judges what is sent to it, with evaluators that stay from one candidate to the next.

The functions run in a worker process of Dask.  Text comes in and text goes out (`wire`); a candidate is
executed by its evaluator's runner, isolated and with a clean environment, and never in this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
from collections import OrderedDict
from typing import Any

import torch

from autokernel.errors import AutokernelError
from autokernel.evaluator import Evaluator
from autokernel.workers import setup, wire

__all__ = ["call_off", "close_all", "judge", "under_way"]

_MOST_KEPT = 4  # evaluators; each has a zygote of some hundred MB
_CALLS = ("evaluate", "measure", "verify")


class _Bench:
    """The evaluators of this process, by the text of their subject; the least recently used is closed first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Evaluator] = OrderedDict()
        self._running: dict[str, str] = {}  # subject, by task

    def begin(self, task: str, subject: str) -> Evaluator:
        """The evaluator for a task, made where there is none."""
        with self._lock:
            if subject not in self._kept:
                self._make_room()
                setup.free_threads()
                self._kept[subject] = wire.make_evaluator(subject, _report)
            self._kept.move_to_end(subject)
            self._running[task] = subject
            return self._kept[subject]

    def end(self, task: str) -> None:
        with self._lock:
            self._running.pop(task, None)

    def under_way(self) -> list[str]:
        with self._lock:
            return list(self._running)

    def drop(self, task: str) -> None:
        """Close the evaluator that is at work on a task, which ends it."""
        with self._lock:
            evaluator = self._kept.pop(self._running.get(task, ""), None)
        if evaluator is not None:
            evaluator.close()

    def close(self) -> None:
        with self._lock:
            evaluators = list(self._kept.values())
            self._kept.clear()
        for evaluator in evaluators:
            evaluator.close()

    def _make_room(self) -> None:
        idle = [subject for subject in self._kept if subject not in self._running.values()]
        for subject in idle[: max(0, len(self._kept) + 1 - _MOST_KEPT)]:
            self._kept.pop(subject).close()


_BENCH = _Bench()
_NOW = threading.local()  # the request that this thread is at work on


def judge(request: str) -> str:
    """Carry out one call of an evaluator.

    Args:
        request: JSON with ``subject``, ``call`` (evaluate, measure or verify), ``source``, ``options``,
            ``task`` (its id) and ``topic`` (where progress is told).

    Returns:
        JSON with ``worker``, ``device`` and either ``result`` or ``error``.
    """
    _NOW.request = data = json.loads(request)
    task, answer = data["task"], {"worker": _worker_name(), "device": ""}
    _report({"stage": "worker", "status": "start"})
    try:
        evaluator = _BENCH.begin(task, data["subject"])
        answer["device"] = str(evaluator.device)
        if data["call"] not in _CALLS:
            raise ValueError(f"no call {data['call']!r}")
        result = getattr(evaluator, data["call"])(data["source"], **data["options"])
    except AutokernelError as error:
        return json.dumps({**answer, "error": wire.error_to(error)})
    finally:
        _BENCH.end(task)
        _NOW.request = None
    threading.Thread(target=_prestart, args=(evaluator,), daemon=True).start()
    return json.dumps({**answer, "result": result.to_dict()}, default=str)


async def call_off(tasks: list[str]) -> None:
    """End the tasks of this list that are under way here; returns at once."""
    for task in tasks:
        threading.Thread(target=_BENCH.drop, args=(task,), daemon=True).start()


def under_way() -> list[str]:
    """The ids of the tasks that are being carried out here."""
    return _BENCH.under_way()


def close_all() -> None:
    """End all evaluators of this process."""
    _BENCH.close()


def _prestart(evaluator: Evaluator) -> None:
    with contextlib.suppress(AutokernelError, OSError):  # it was closed meanwhile; the next call says what is wrong
        evaluator.prestart()


def _report(update: dict[str, Any]) -> None:
    """Tell the driver how far the task of this thread is."""
    from distributed import get_worker

    request = getattr(_NOW, "request", None)
    if request is not None:
        get_worker().log_event(request["topic"], {**update, "task": request["task"], "by": _worker_name()})


def _worker_name() -> str:
    """Worker, host and device in words, such as ``worker-1 on node7, GPU 1``."""
    from distributed import get_worker

    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("HIP_VISIBLE_DEVICES") or "0"
    place = f"GPU {visible.split(',')[0]}" if torch.cuda.is_available() else "CPU"
    return f"{get_worker().name} on {platform.node()}, {place}"
