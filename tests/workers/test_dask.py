"""Judging on two real Dask workers: the same verdicts, several at once, and a worker that is killed costs nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="needs autokernel[dask]")

from autokernel import results
from autokernel.errors import BackendUnavailable, DeviceUnavailable, RunnerLost, UsageError
from autokernel.evaluator import EvaluatorSettings
from autokernel.ops.spec import TimingCase
from autokernel.session import Session
from autokernel.verdict import Stage, Verdict
from autokernel.workers import DaskEvaluator, bench, open_workers, pool, wire
from tests.evaluating import settings, shared_evaluator
from tests.planting import changed, needs_compiler, right, wrapped
from tests.scripted import wait_for
from tests.test_evaluator import AFFINE, SPEC

CASE = TimingCase(shape={"M": 64, "N": 1024}, dtype="float32")
WRONG = changed("rmsnorm", ("* scale *", "* scale * 1.001f *"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("OPENAI_API_KEY", "sk-secret")
        with open_workers("local:2", device="cpu") as client:
            yield client


class Brief(DaskEvaluator):
    """With the settings for tests, whatever the run wants."""

    def bind(self, reference: str, **options: Any) -> DaskEvaluator:
        return super().bind(reference, **{**options, "settings": settings()})


def without_times(verdict: Verdict) -> Any:
    """A verdict as data, without what differs from one call to the next: seconds, and who judged."""
    data = json.loads(json.dumps(verdict.to_dict(), default=str))

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(one) for name, one in value.items() if name not in ("seconds", "worker")}
        return [strip(one) for one in value] if isinstance(value, list) else value

    return strip(data)


@needs_compiler
@pytest.mark.parametrize(("source", "stages"), [(WRONG, None), (right("rmsnorm"), [Stage.SMOKE, Stage.STABILITY])])
def test_the_verdict_on_a_seed_is_the_local_evaluators(client, source, stages):
    local = shared_evaluator("rmsnorm").verify(source, seed=7, stages=stages)
    with DaskEvaluator(client, "rmsnorm", device="cpu", settings=settings()) as evaluator:
        verdict = evaluator.verify(source, seed=7, stages=stages)

    assert without_times(verdict) == without_times(local)
    assert verdict.details["worker"].startswith("worker-")


@needs_compiler
def test_a_candidate_on_a_worker_sees_no_secret_of_the_driver_and_has_all_cores(client):
    look = "os.environ.get('OPENAI_API_KEY', 'no key') + ', ' + os.environ.get('OMP_NUM_THREADS', 'no cap')"
    source = wrapped("rmsnorm", f"import os\nraise ValueError({look})")
    with DaskEvaluator(client, "rmsnorm", device="cpu", settings=settings()) as evaluator:
        verdict = evaluator.verify(source, stages=[Stage.SMOKE])

    assert "ValueError: no key, no cap" in verdict.reason


def worker_pids(client: Any) -> dict[str, int]:
    return dict(client.run(os.getpid))


@needs_compiler
def test_a_worker_killed_midway_costs_no_experiment_and_doubles_none(client, tmp_path):
    spec = tmp_path / "my_op.py"
    spec.write_text(SPEC)
    start = "UNROLL = 4  # tune: 1, 2, 4, 8, 16\nUSED = UNROLL\n" + AFFINE
    before, killed = worker_pids(client), []

    async def drive(session: Session) -> None:
        run = asyncio.create_task(session.run(experiments=3))
        while not run.done():
            await asyncio.sleep(0.05)
            under_way = [
                event for event in session.folder.events()
                if event["kind"] == "progress" and event["experiment"] == 1 and event["stage"] != "worker"
            ]  # fmt: skip
            if under_way and not killed:
                judged_by = under_way[0]["worker"].split()[0]
                workers = client.scheduler_info(n_workers=-1)["workers"]
                address = next(address for address, worker in workers.items() if worker["name"] == judged_by)
                killed.append(before[address])
                os.kill(before[address], signal.SIGKILL)
        await run

    with Session.create(
        str(spec), device="cpu", root=tmp_path, agent="search", start=start, evaluator=Brief(client)
    ) as session:
        asyncio.run(drive(session))

        rows = results.load(session.path / "results.tsv")
        assert killed, "no worker was killed"
        assert [row.experiment for row in rows] == [0, 1, 2, 3]
        assert {row.correctness for row in rows} == {"PASS"}
        assert {row.worker.split()[0] for row in rows} == {"worker-0", "worker-1"}
        again = [event for event in session.folder.events() if str(event.get("status", "")).startswith("again")]
        assert 1 in {event["experiment"] for event in again}
        assert [event["worker"] for event in session.folder.events() if event["kind"] == "decided"] == [
            row.worker for row in rows
        ]
        assert session.experiments[1].hypothesis == rows[1].description
    wait_for(lambda: len(worker_pids(client)) == 2, seconds=30)
    assert not set(killed) & set(worker_pids(client).values())


@needs_compiler
def test_closing_calls_off_what_is_judged_and_frees_the_worker(client):
    hangs = wrapped("rmsnorm", "import time\ntime.sleep(1000)")
    started, ended = threading.Event(), []
    evaluator = DaskEvaluator(
        client, "rmsnorm", device="cpu", settings=EvaluatorSettings(runners=1, roofline=False),
        progress=lambda update: started.set(),
    )  # fmt: skip

    def judge() -> None:
        try:
            evaluator.verify(hangs)
        except RunnerLost as error:
            ended.append(str(error))

    thread = threading.Thread(target=judge)
    thread.start()
    assert started.wait(20)
    evaluator.close()
    thread.join(20)

    assert ended == ["the evaluator was closed; what it judged at that time has no verdict"]
    wait_for(lambda: not any(client.run(bench.under_way).values()), seconds=30)


def test_an_error_of_the_judging_is_the_one_that_the_local_evaluator_raises(client):
    with (
        DaskEvaluator(client, "rmsnorm", device="cpu", dtype="float8", settings=settings()) as evaluator,
        pytest.raises(UsageError, match="on worker-. on .*: .*float8"),
    ):
        evaluator.verify("")


def test_without_an_operation_nothing_can_be_judged(client):
    with DaskEvaluator(client) as evaluator, pytest.raises(UsageError, match="no operation yet"):
        evaluator.verify("")


def test_a_cluster_without_fitting_workers_is_named_after_a_while():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
        DaskEvaluator(client, "rmsnorm", device="cpu", patience_seconds=0.1) as evaluator,
    ):
        assert evaluator.lanes == 1
        with pytest.raises(RunnerLost, match="1 workers, none of which has the resource autokernel-device"):
            evaluator.verify("")


def test_a_worker_of_another_version_is_refused():
    subject = wire.subject_text(
        "rmsnorm", device="cuda:1", timing_cases=[CASE], dtype=None, settings=EvaluatorSettings(allow=("library_call",))
    )
    data = json.loads(subject)

    assert data["device"] == "cuda", "which GPU is for the worker to say"
    with pytest.raises(UsageError, match="harness .* and the driver with 0123.*install the same version"):
        wire.make_evaluator(json.dumps({**data, "harness": "0123"}), lambda update: None)
    with pytest.raises(UsageError, match="is another one on the worker"):
        wire.make_evaluator(json.dumps({**data, "content": "0123"}), lambda update: None)


@pytest.mark.parametrize("where", ["local:0", "local:two", "node1:8786", "two"])
def test_what_names_no_workers_is_refused(where):
    with pytest.raises(UsageError, match="use local:N .* or a scheduler's address"), open_workers(where):
        pass


def test_without_dask_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(BackendUnavailable, match=r"pip install 'autokernel\[dask\]'"), open_workers("local:1"):
        pass


def test_each_local_worker_sees_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)

    assert pool._masks(2, "cuda:1") == [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "3"}]
    assert pool._masks(2, "cpu") == [{}, {}]
    with pytest.raises(DeviceUnavailable, match="needs 3 GPUs, and PyTorch sees 2; use local:2"):
        pool._masks(3, "cuda")


def test_the_package_is_loaded_without_dask():
    script = "import sys, autokernel.workers; sys.exit('dask' in sys.modules or 'distributed' in sys.modules)"
    root = Path(__file__).parents[2]

    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0
