"""Judges on the workers of a Dask cluster: the interface of `Evaluator`, several candidates at once.

Each call is one task of Dask.  It takes a worker's device whole, verification and paired timings
together, so a candidate meets its incumbent on one device and no two timings share one.  A task whose
worker is lost is carried out by another worker; the same seed gives the same inputs there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import queue
import secrets
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from autokernel.errors import RunnerLost, UsageError
from autokernel.evaluator import Evaluation, EvaluatorSettings
from autokernel.measurement import Measurement
from autokernel.ops.spec import TimingCase
from autokernel.verdict import Stage, StageResult, Status, Verdict
from autokernel.verifier.stages import Progress
from autokernel.workers import bench, wire
from autokernel.workers.pool import RESOURCE, check_installed, lanes_of

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskEvaluator"]

_LOOK_SECONDS = 2.0
_PATIENCE_SECONDS = 120.0


class DaskEvaluator:
    """Judges candidates for one operation on whatever workers a cluster has.  Use as a context manager.

    May be called from several threads; the calls share the workers.  The client stays open.

    Args:
        client: A client of Dask, not an asynchronous one.  Its workers have the resource
            ``autokernel-device=1`` and one thread; see docs/workers.md.
        reference: As for `Evaluator`; None for one that a session makes its own (`bind`).
        device: ``auto``, ``cpu`` or ``cuda``; which GPU a worker uses is for the worker to say.
        timing_cases, dtype, settings, progress: As for `Evaluator`.  Progress is told in the thread that
            called, and says which worker is at work.
        most: Judge at most so many at once; as many as there are workers when None.
        patience_seconds: How long to wait when there is no worker.

    Raises:
        BackendUnavailable: Dask is not installed.
        UsageError: The client is asynchronous, or a timing case cannot be sent.
    """

    def __init__(
        self,
        client: Client,
        reference: str | None = None,
        *,
        device: str = "auto",
        timing_cases: Sequence[TimingCase] | None = None,
        dtype: str | None = None,
        settings: EvaluatorSettings | None = None,
        progress: Progress | None = None,
        most: int | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        check_installed()
        if client.asynchronous:
            raise UsageError("the client of Dask is asynchronous; make one with Client(..., asynchronous=False)")
        self._client = client
        self._most = most
        self._patience_seconds = patience_seconds
        self._progress = progress
        self._subject = None
        if reference is not None:
            self._subject = wire.subject_text(
                reference, device=device, timing_cases=timing_cases, dtype=dtype,
                settings=settings or EvaluatorSettings(),
            )  # fmt: skip
        self._topic = f"autokernel-{uuid.uuid4().hex}"
        self._updates: dict[str, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._futures: dict[str, Future[str]] = {}
        self._device = ("", "")  # of the first answer: its name, the worker
        self._lock = threading.Lock()
        self._closed = False
        self._client.subscribe_topic(self._topic, self._take_update)

    def bind(self, reference: str, **options: Any) -> DaskEvaluator:
        """An evaluator for an operation on the same workers; the options are those of the constructor."""
        limits = {"most": self._most, "patience_seconds": self._patience_seconds}
        return DaskEvaluator(self._client, reference, **{**limits, **options})

    @property
    def lanes(self) -> int:
        """How many candidates can be judged at once now; at least 1, because a worker may still come."""
        try:
            lanes = max(1, lanes_of(self._client))
        except OSError:  # no scheduler: the next judgement says so
            lanes = 1
        return lanes if self._most is None else min(lanes, self._most)

    # Judging

    def verify(self, source: str, *, seed: int | None = None, stages: Sequence[Stage] | None = None) -> Verdict:
        """As `Evaluator.verify`."""
        answer = self._ask("verify", source, seed=seed, stages=stages)
        if answer is None:
            return _CRASHED
        return _signed(Verdict.from_dict(answer["result"]), answer["worker"])

    def evaluate(
        self,
        source: str,
        *,
        incumbent: str | None = None,
        seed: int | None = None,
        compiled: bool = False,
        stages: Sequence[Stage] | None = None,
        allow: Collection[str] = (),
    ) -> Evaluation:
        """As `Evaluator.evaluate`.  A candidate that took four workers down with it is rejected as a crash."""
        answer = self._ask(
            "evaluate", source, incumbent=incumbent, seed=seed, compiled=compiled, stages=stages, allow=sorted(allow)
        )
        if answer is None:
            return Evaluation(verdict=_CRASHED)
        evaluation = Evaluation.from_dict(answer["result"])
        return dataclasses.replace(evaluation, verdict=_signed(evaluation.verdict, answer["worker"]))

    def measure(
        self, source: str, *, incumbent: str | None = None, seed: int | None = None, compiled: bool = False
    ) -> Measurement:
        """As `Evaluator.measure`."""
        answer = self._ask("measure", source, incumbent=incumbent, seed=seed, compiled=compiled)
        if answer is None:
            raise UsageError(f"the kernel cannot be timed: {_CRASHED.error}")
        return Measurement.from_dict(answer["result"])

    def prestart(self) -> None:
        """Nothing: a worker starts its next runner itself."""

    def close(self) -> None:
        """Call off what is being judged; those who wait for it get `RunnerLost`.  Workers and client stay."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            futures = dict(self._futures)
        with contextlib.suppress(Exception):  # the cluster may be gone already
            if futures:
                self._client.cancel(list(futures.values()), force=True)
                self._client.run(bench.call_off, list(futures), wait=False, on_error="ignore")
            self._client.unsubscribe_topic(self._topic)
        for updates in list(self._updates.values()):
            updates.put(None)

    def __enter__(self) -> DaskEvaluator:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # Tasks

    def _ask(
        self, call: str, source: str, *, seed: int | None, stages: Sequence[Stage] | None = None, **options: Any
    ) -> dict[str, Any] | None:
        """Have a worker carry out a call; None if the workers that tried died of it, one after the other."""
        if self._subject is None:
            raise UsageError("this evaluator has no operation yet; give it one: DaskEvaluator(client, 'rmsnorm')")
        seed = secrets.randbits(48) if seed is None else seed  # fixed here, so that another worker has the same inputs
        options |= {"seed": seed} if stages is None else {"seed": seed, "stages": [Stage(one).value for one in stages]}
        task = uuid.uuid4().hex
        request = {
            "subject": self._subject, "call": call, "source": source, "options": options,
            "task": task, "topic": self._topic,
        }  # fmt: skip
        updates = self._updates[task] = queue.SimpleQueue()
        try:
            with self._lock:
                self._refuse_if_closed()
                future = self._futures[task] = self._client.submit(
                    bench.judge, json.dumps(request), key=f"autokernel-{call}-{task}", resources={RESOURCE: 1},
                    pure=False,
                )  # fmt: skip
            future.add_done_callback(lambda _: updates.put(None))
            self._follow(updates, future)
            answer = self._answer(future)
        finally:
            with self._lock:
                self._futures.pop(task, None)
            self._updates.pop(task, None)
        if answer is not None:
            self._check_device(answer)
        return answer

    def _follow(self, updates: queue.SimpleQueue[dict[str, Any] | None], future: Future[str]) -> None:
        """Pass progress on until the task ended; end it where there is no worker for too long."""
        seen, alone_since, look = "", None, time.monotonic() + _LOOK_SECONDS
        while not self._closed:
            try:
                update = updates.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                update = {}
            if update is None:
                return
            if update.get("stage") == "worker":
                update = {**update, "status": "again, a worker was lost" if seen else update["status"]}
                seen = update["worker"]
            if update and self._progress is not None:
                self._progress(update)
            if time.monotonic() < look:
                continue
            look = time.monotonic() + _LOOK_SECONDS
            if lanes_of(self._client):
                alone_since = None
            else:
                alone_since = alone_since or time.monotonic()
                if time.monotonic() - alone_since > self._patience_seconds:
                    future.cancel()
                    raise RunnerLost(_no_worker(self._client, self._patience_seconds))

    def _answer(self, future: Future[str]) -> dict[str, Any] | None:
        from distributed import KilledWorker

        self._refuse_if_closed()
        try:
            answer = json.loads(future.result(timeout=60))
        except KilledWorker:
            return None
        except ImportError as error:
            raise UsageError(
                f"a worker cannot load autokernel ({error}); install the same version there, with its dependencies"
            ) from None
        except (CancelledError, OSError, TimeoutError) as error:
            self._refuse_if_closed()
            raise RunnerLost(f"the Dask cluster was lost while it judged: {error}; see its scheduler's log") from None
        if "error" in answer:
            self._refuse_if_closed()
            raise wire.error_from(answer["error"], answer["worker"])
        assert isinstance(answer, dict)
        return answer

    def _check_device(self, answer: dict[str, Any]) -> None:
        """Refuse workers of different devices: times on one say nothing about the other.

        Raises:
            UsageError: They are different.
        """
        device, worker = answer["device"], answer["worker"]
        with self._lock:
            first, its_worker = self._device = self._device if self._device[0] else (device, worker)
        if device != first:
            raise UsageError(
                f"the workers have different devices: {its_worker} has {first}, {worker} has {device}; their times "
                "cannot be compared, so use one kind of device for a run"
            )

    def _take_update(self, event: tuple[float, dict[str, Any]]) -> None:
        """Called in the client's thread."""
        update = {**event[1], "worker": event[1].get("by", "")}
        updates = self._updates.get(update.pop("task", ""))
        del update["by"]
        if updates is not None:
            updates.put(update)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RunnerLost("the evaluator was closed; what it judged at that time has no verdict")


_CRASHED = Verdict(
    accepted=False,
    stages=(StageResult(name=Stage.SMOKE, status=Status.CRASH),),
    error="the workers that judged it were killed, one after the other, while they did (out of memory?)",
)


def _signed(verdict: Verdict, worker: str) -> Verdict:
    """The verdict with the worker that gave it among its details."""
    return dataclasses.replace(verdict, details={**verdict.details, "worker": worker})


def _no_worker(client: Client, seconds: float) -> str:
    others = len(client.scheduler_info(n_workers=-1)["workers"])
    which = f"{others} workers, none of which has the resource {RESOURCE}" if others else "no workers"
    return (
        f"the Dask cluster had {which} for {seconds:g} s, so nothing could be judged; start some with "
        f"`dask worker {client.scheduler.address} --nthreads 1 --memory-limit 0 --resources {RESOURCE}=1 "
        "--preload autokernel.workers.setup`"
    )
