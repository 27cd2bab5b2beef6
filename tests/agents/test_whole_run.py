"""Agents drive a run on this machine's CPU with the real judge: a language model, then two from outside."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from autokernel.runfolder import RunFolder
from tests.agents.mcp_client import client_of, data
from tests.agents.model_server import ModelServer, edit, says
from tests.command_line import autokernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled"),
]

KEY = "sk-test-9f3c1d7a5b"
ANSWERS = [
    edit("    x, weight = x.contiguous(), weight.contiguous()", "    x, weight = x, weight", "no copies: 5 % less"),
    edit('CPP_SRC = r"""', 'CPP_SRC = r"""\nint broken = ;', "a compile error"),
    edit(
        "LANES = 1  # partial sums of a row, which g++ keeps in vector registers",
        "LANES = 16  # partial sums of a row, which g++ keeps in vector registers",
        "16 sums at once: twice",
    ),
]


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """A run whose first three experiments a model proposed, and what the model was asked."""
    root = tmp_path_factory.mktemp("runs")
    before = os.environ.get("OPENAI_API_KEY")
    os.environ["OPENAI_API_KEY"] = KEY
    try:
        with ModelServer([says(answer) for answer in ANSWERS]) as server:
            made = autokernel(
                "new", "rmsnorm", "--device", "cpu", "--shape", "M=64,N=512", "--root", root, "--agent", "openai:m",
                "--base-url", server.base_url, "--agent-setting", "prompt_tokens=20000",
            )  # fmt: skip
            assert made.returncode == 0, made.stderr
            early = autokernel("context", "rmsnorm-1", "--root", root)
            assert early.returncode == 2, early.stderr
            assert "is not judged yet; do that first: autokernel step" in early.stderr
            done = autokernel("run", "rmsnorm-1", "--root", root, "--experiments", "3", "--json")
            assert done.returncode == 0, done.stderr
            return root / "rmsnorm-1", [server.question(number) for number in range(3)]
    finally:
        del os.environ["OPENAI_API_KEY"]
        if before is not None:
            os.environ["OPENAI_API_KEY"] = before


def test_a_model_reads_why_its_kernels_failed_and_hands_in_a_right_one(driven):
    path, questions = driven
    experiments = RunFolder(path).experiments[:4]

    assert [one.failed_stage for one in experiments] == ["", "sweep", "smoke", ""], [one.reason for one in experiments]
    assert {one.agent for one in experiments[1:]} == {"openai:m"}
    assert experiments[3].hypothesis == "16 sums at once: twice"
    assert "takes a contiguous tensor" in questions[1]
    assert "line 2: expected primary-expression" in questions[2]
    assert "| int broken = ;" in questions[2]


def test_the_key_is_nowhere_in_the_run_folder(driven):
    path, _ = driven
    sources = [RunFolder(path).source(number) for number in range(4)]

    assert [file for file in path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()] == []
    assert not any(KEY in source for source in sources)


async def test_an_agent_goes_on_with_the_tools_of_the_protocol(driven):
    path, _ = driven
    before = len(RunFolder(path).experiments)
    async with client_of(path) as client:
        wrong = await data(client, "submit", kernel="def kernel_fn(:\n", hypothesis="a typo", agent="coder")
        while not wrong["done"]:
            wrong = await data(client, "wait", number=before)
        verdict = await data(client, "verdict", number=before)
        context = await data(client, "context")

    assert (wrong["number"], wrong["outcome"], wrong["agent"]) == (before, "rejected", "coder")
    assert "SyntaxError" in verdict["details"] or "invalid syntax" in verdict["details"]
    assert "a typo" in context
    assert RunFolder(path).status.driver is None


def test_an_agent_goes_on_from_the_folder_with_the_command_line_alone(driven):
    path, _ = driven
    context = autokernel("context", ".", cwd=path).stdout
    assert f"autokernel submit {path} candidate.py" in context
    assert (path / "kernel.py").read_text().strip() in context

    (path / "candidate.py").write_text("BACKEND = 'cpp'\ndef kernel_fn(x, weight, eps=1e-6):\n    return x.clone()\n")
    submit = ("submit", ".", "candidate.py", "--hypothesis", "no work at all", "--agent", "coder", "--json")
    done = autokernel(*submit, cwd=path)
    told = json.loads(done.stdout)
    shown = autokernel("show", ".", str(told["number"]), cwd=path).stdout

    assert done.returncode == 1
    assert (told["correctness"], told["decision"], told["agent"]) == ("FAIL", "revert", "coder")
    assert "smoke" in shown
    assert "REJECTED" in shown
