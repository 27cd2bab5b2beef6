"""Where workers come from: processes of this machine, one for each device, or a cluster that somebody runs.

A worker announces the resource ``autokernel-device=1``; each judgement takes it whole, so that a device
does one thing at a time.  Workers of this machine talk through TLS with a key that lives in memory only,
because who may speak to a Dask scheduler may run code as its owner; a worker that dies is started again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autokernel.errors import BackendUnavailable, DeviceUnavailable, RunnerLost, UsageError
from autokernel.workers import bench, setup

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["RESOURCE", "check_installed", "lanes_of", "open_workers"]

RESOURCE = "autokernel-device"
_LOCAL = re.compile(r"local:([1-9]\d?)")
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://\S+:\d+\S*")
_CONNECT_SECONDS = 30
_MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@contextlib.contextmanager
def open_workers(where: str, *, device: str = "auto") -> Iterator[Client]:
    """Workers for as long as the context lasts.

    Args:
        where: ``local:N``: N processes of this machine, each with a GPU of its own, or sharing the CPU.
            ``tcp://HOST:PORT`` or ``tls://HOST:PORT``: the scheduler of a cluster that runs already.
        device: What the run is for, as in target.toml; decides whether local workers get GPUs.

    Yields:
        A client of Dask.

    Raises:
        UsageError: ``where`` is none of these.
        BackendUnavailable: Dask is not installed.
        DeviceUnavailable: There are fewer GPUs than workers.
        RunnerLost: The scheduler does not answer.
    """
    local = _LOCAL.fullmatch(where)
    if local is None and not _ADDRESS.fullmatch(where):
        raise UsageError(
            f"workers {where!r} are none; use local:N with N from 1 to 99, or a scheduler's address such as "
            "tcp://node1:8786"
        )
    check_installed()
    with _local_cluster(int(local[1]), device) if local else _remote(where) as client:
        yield client


def check_installed() -> None:
    """Raise `BackendUnavailable`, saying what to install, where Dask is missing."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise BackendUnavailable(
            f"judging on several workers needs Dask ({error}); install it: pip install 'autokernel[dask]'"
        ) from None


def lanes_of(client: Client) -> int:
    """How many candidates the workers that are there now can judge at once."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(int(worker["resources"].get(RESOURCE, 0)) for worker in workers)


@contextlib.contextmanager
def _local_cluster(count: int, device: str) -> Iterator[Client]:
    masks = _masks(count, device)
    import dask
    from distributed import Client, Nanny, Scheduler, Security, SpecCluster

    try:
        security = Security.temporary()
    except ImportError as error:
        raise BackendUnavailable(
            f"local workers need a TLS key ({error}); install it: pip install 'autokernel[dask]'"
        ) from None
    common = {"host": "127.0.0.1", "protocol": "tls", "security": security}
    worker = {"nthreads": 1, "memory_limit": 0, "resources": {RESOURCE: 1}, "preload": [setup.__name__]}
    workers = {
        number: {
            "cls": Nanny,
            "options": {
                **common,
                **worker,
                "silence_logs": logging.ERROR,
                "name": f"worker-{number}",
                "env": masks[number],
            },
        }
        for number in range(count)
    }
    scheduler = {"cls": Scheduler, "options": {**common, "dashboard_address": "127.0.0.1:0", "dashboard": False}}
    quiet: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
    with dask.config.set(quiet):
        cluster = SpecCluster(workers=workers, scheduler=scheduler, security=security, silence_logs=logging.ERROR)
        with cluster, Client(cluster) as client:
            client.wait_for_workers(count, timeout=120)
            try:
                yield client
            finally:
                with contextlib.suppress(Exception):  # whatever is wrong with a worker, it is ended now
                    client.run(bench.close_all, on_error="ignore")


@contextlib.contextmanager
def _remote(address: str) -> Iterator[Client]:
    from distributed import Client

    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise RunnerLost(f"no Dask scheduler answers at {address}: {error or 'no answer'}; is it running?") from None
    with client:
        yield client


def _masks(count: int, device: str) -> list[Mapping[str, str]]:
    """For each of ``count`` local workers the variables that show it its one GPU; none on a CPU.

    GPUs are taken in their order, beginning with the one that the device names.
    """
    import torch

    kind, _, index = device.partition(":")
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return [{}] * count
    name = _MASKS[1] if torch.version.hip else _MASKS[0]
    known = [one for one in os.environ.get(name, "").split(",") if one]
    visible = known or [str(number) for number in range(torch.cuda.device_count())]
    if count > len(visible):
        raise DeviceUnavailable(
            f"local:{count} needs {count} GPUs, and PyTorch sees {len(visible)}; use local:{max(1, len(visible))}"
        )
    start = int(index or 0) % len(visible)
    return [{name: (visible[start:] + visible[:start])[number]} for number in range(count)]
