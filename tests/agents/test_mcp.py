"""`autokernel mcp` in a process of its own, spoken to with the SDK's own client."""

from __future__ import annotations

import json

from tests.agents.mcp_client import client_of, data, text_of
from tests.command_line import autokernel
from tests.recorded_run import HOSTILE, record_run
from tests.scripted import ScriptedEvaluator, kernel
from tests.test_session import new


async def test_tools_tell_of_a_run_that_nobody_drives(tmp_path):
    run = record_run(tmp_path / "rmsnorm-1", waiting=True)
    async with client_of(run) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        status = await data(client, "status")
        history = await data(client, "history", last=3)
        verdict = await data(client, "verdict", number=3)
        hostile = await data(client, "verdict", number=2)
        kernel = await data(client, "kernel")
        context = await data(client, "context", tokens=9000)
        waiting = await data(client, "wait", wait_seconds=0)
        refused = await client.call_tool("submit", {"kernel": "x = 1", "hypothesis": "h"})
        unknown = await client.call_tool("verdict", {"number": 77})

    assert set(tools) == {"status", "context", "kernel", "history", "verdict", "submit", "wait"}
    assert "committed, judged" in tools["submit"].description
    assert status["tally"] == {"total": 3, "kept": 1, "reverted": 1, "rejected": 1}
    assert (status["state"], status["best"]["number"]) == ("waiting", 1)
    assert "3: rejected; FAIL" in history
    assert "got nan, expected 0.25" in verdict["details"]
    assert "+LANES = 8" in verdict["diff"]
    assert "\x1b" in HOSTILE
    assert "\x1b" not in json.dumps(hostile)
    assert "LANES = 2" in kernel
    assert "with the tool `submit`" in context
    assert "## The contract of kernel.py" in context
    assert (waiting["number"], waiting["done"]) == (4, False)
    assert "waits for a person" in waiting["note"]
    assert refused.is_error
    assert "experiment 4 waits for a person's decision" in text_of(refused)
    assert unknown.is_error
    assert "has no experiment 77" in text_of(unknown)


async def test_a_submission_to_a_run_that_is_driven_goes_to_its_driver(tmp_path):
    with new(tmp_path, [], evaluator=ScriptedEvaluator()) as session:
        await session.step()
        async with client_of(session.path) as client:
            sent = await data(
                client, "submit", kernel=kernel(1.7), hypothesis="from outside", agent="coder", wait_seconds=0.5
            )
            assert (sent["done"], sent["note"]) == (False, "it is not judged yet; call wait")
            experiment = await session.step()
            told = await data(client, "wait", number=1)

    assert (experiment.agent, experiment.hypothesis, experiment.decision) == ("coder", "from outside", "keep")
    assert (told["done"], told["outcome"]) == (True, "kept")


def test_new_refuses_settings_without_a_model(tmp_path):
    done = autokernel("new", "rmsnorm", "--device", "cpu", "--root", tmp_path, "--base-url", "http://localhost:1/v1")

    assert done.returncode == 2
    assert "for --agent openai:MODEL" in done.stderr
    assert not (tmp_path / "rmsnorm-1").exists()
