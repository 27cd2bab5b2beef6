"""Floods of processes, threads, files and bytes: each ends the runner or the write, and is named, at every level."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from autokernel.evaluator import Evaluator
from autokernel.runner import sandbox
from autokernel.verdict import Stage
from tests.evaluating import LIMITS, brief_evaluator
from tests.planting import at_import, right

pytest.importorskip("triton")

SMOKE = [Stage.SMOKE]
LEVELS = sandbox.LEVELS[sandbox.LEVELS.index(sandbox.level()) :]
STRICT = dataclasses.replace(
    LIMITS, load_seconds=30.0, processes=24, scratch_files=300, scratch_bytes=16 << 20, file_bytes=8 << 20
)
FORKS = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
time.sleep(25)
"""
BOMB = """
import os, time
end = time.time() + 20
while time.time() < end:  # each of the children forks, too, while there are fewer than 400 processes
    if sum(name.isdigit() for name in os.listdir('/proc')) < 400 and depth < 8:
        depth += os.fork() == 0
    time.sleep(0.02)
"""
THREADS = """
import threading, time
for _ in range(250):
    threading.Thread(target=time.sleep, args=(25,), daemon=True).start()
time.sleep(25)
"""
FILES = """
import time
for number in range(1000):
    open(f'file{number}', 'w').close()
time.sleep(5)
"""
MANY_BYTES = """
import time
for number in range(10):
    open(f'file{number}', 'wb').write(bytes(4 << 20))
time.sleep(5)
"""


@pytest.fixture(scope="module", params=LEVELS)
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    with brief_evaluator("rmsnorm", isolation=request.param, limits=STRICT) as evaluator:
        yield evaluator


@pytest.mark.parametrize("flood", [FORKS, "depth = 0\n" + BOMB, THREADS], ids=["forks", "a fork bomb", "threads"])
def test_too_many_processes_or_threads_end_the_runner(evaluator, flood):
    verdict = evaluator.verify(at_import(flood), stages=SMOKE)

    assert "process_flood" in {finding.kind for finding in verdict.findings}, verdict.reason
    assert "so they were ended" in verdict.reason and "while importing kernel.py" in verdict.reason
    assert evaluator.verify(right("rmsnorm", "triton"), stages=SMOKE).accepted


@pytest.mark.parametrize("flood", [FILES, MANY_BYTES], ids=["files", "bytes"])
def test_too_much_in_the_scratch_folder_is_refused_or_ends_the_runner(evaluator, flood):
    verdict = evaluator.verify(at_import(flood), stages=SMOKE)

    kinds = {finding.kind for finding in verdict.findings}
    if evaluator._zygote.level == "namespaces":
        assert "No space left on device" in verdict.reason
        assert "file_written" in kinds
    else:
        assert "scratch_flood" in kinds, verdict.reason
    assert evaluator.verify(right("rmsnorm", "triton"), stages=SMOKE).accepted
