"""The language model as agent: the real client against a real HTTP server with scripted and broken answers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from autokernel.agents import make
from autokernel.agents.openai import OpenAIAgent
from autokernel.errors import AgentUnavailable, UsageError
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from tests.agents.contexts import context_of
from tests.agents.model_server import (
    ModelServer,
    babbles,
    breaks_off,
    disconnects,
    edit,
    fails,
    hangs,
    says,
    surprises,
    whole_file,
)
from tests.scripted import ScriptedEvaluator, kernel

KEY = "sk-test-9f3c1d7a5b"
QUICK = {"first_wait_seconds": 0.01, "retry_seconds": 20.0, "idle_seconds": 20.0}


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def new(tmp_path, server, *, evaluator=None, **settings):
    """A run of kernels that the scripted judge understands, driven by the agent."""
    agent = OpenAIAgent("model-1", server.base_url, **{**QUICK, **settings})
    return Session.create(
        "rmsnorm", device="cpu", root=tmp_path, start=kernel(1.0), agent=agent,
        evaluator=evaluator or ScriptedEvaluator(),
    )  # fmt: skip


async def second_experiment(tmp_path, answers, **settings):
    """The first experiment that the agent proposes, its record, and the server that it asked."""
    with ModelServer(answers) as server, new(tmp_path, server, **settings) as session:
        await session.step()
        experiment = await session.step()
        return experiment, session.folder.record(1), server, session


async def proposed(tmp_path, answers, **settings):
    """What the agent proposes without a session, and the server that it asked."""
    with ModelServer(answers) as server:
        agent = OpenAIAgent("model-1", server.base_url, **{**QUICK, **settings})
        return await agent.propose(context_of(tmp_path, kernel(1.0))), server


def agent_files(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / ".autokernel/agent/usage.jsonl").read_text().splitlines()]


async def test_a_whole_file_becomes_an_experiment_with_its_tokens_and_its_exchange(tmp_path):
    source = kernel(1.5)
    experiment, record, server, _ = await second_experiment(tmp_path, [says(whole_file(source))])

    assert (experiment.decision, experiment.agent) == ("keep", "openai:model-1")
    assert experiment.hypothesis == "half as many loads, 5 % less"
    assert experiment.tokens == 1200
    (turn,) = record["trace"]["turns"]
    assert turn["usage"] == {"prompt_tokens": 1000, "answer_tokens": 200, "estimated": False}
    *asked, answer = record["trace"]["messages"]
    assert [message["role"] for message in asked] == ["system", "user"]
    assert asked == server.requests[0]["messages"]
    assert answer == {"role": "assistant", "content": whole_file(source)}
    assert server.requests[0]["model"] == "model-1"


async def test_edits_are_applied_to_the_best_kernel(tmp_path):
    experiment, _, _, session = await second_experiment(tmp_path, [says(edit("SPEED = 1.0", "SPEED = 1.5"))])

    assert experiment.decision == "keep"
    assert session.folder.source(1) == kernel(1.0).replace("SPEED = 1.0", "SPEED = 1.5")


async def test_the_prompt_holds_contract_kernel_and_target(tmp_path):
    _, _, server, _ = await second_experiment(tmp_path, [says(whole_file(kernel(1.5)))])

    question = server.question(0)
    assert kernel(1.0) in question
    assert "## The contract of kernel.py" in question
    assert "## Backend: cpp" in question
    assert "## Operation: rmsnorm" in question
    assert "## Backend: cuda" not in question
    assert "mean(x**2)" in question


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("I would unroll the loop.", "holds no kernel.py (prose only)"),
        (whole_file("def something_else():\n    pass\n"), "none of which defines kernel_fn"),
        (whole_file(kernel(2.0).replace("rmsnorm", "softmax")), "KERNEL_TYPE = 'softmax'"),
        (whole_file(kernel(2.0).replace('"cpp"', '"triton"')), "BACKEND = 'triton'"),
        (whole_file(kernel(2.0).replace("return x", "return (x")), "is no Python: line"),
        (edit("SPEED = 7.7", "SPEED = 8.8"), "its SEARCH text is not in the file"),
        (whole_file(kernel(1.0)), "was judged already, as experiment 0"),
        ("HYPOTHESIS: x\n```python\n" + kernel(2.0), "is not closed"),
        ("", "prose only"),
    ],
    ids=["prose", "no kernel_fn", "operation", "backend", "syntax", "edit", "judged", "cut off", "nothing"],
)
async def test_an_answer_that_cannot_be_used_gets_one_repair_turn(tmp_path, answer, told):
    answers = [says(answer), says(whole_file(kernel(1.5)))]
    proposal, server = await proposed(tmp_path, answers)

    assert proposal.source == kernel(1.5)
    repair = server.requests[1]["messages"]
    assert [message["role"] for message in repair] == ["system", "user", "assistant", "user"]
    assert told in repair[-1]["content"]
    assert proposal.trace is not None
    assert told in proposal.trace["turns"][0]["problem"]
    assert proposal.trace["messages"][:-1] == repair
    assert proposal.trace["messages"][-1]["content"] == whole_file(kernel(1.5))
    assert proposal.tokens == 2400


async def test_a_model_that_is_unable_ends_the_run_and_harms_nothing(tmp_path):
    junk = says("rm -rf / \x1b[2J ``` ```python <<<<<<< SEARCH")
    with ModelServer([junk]) as server, new(tmp_path, server) as session:
        summary = await session.run(experiments=5)

        assert "answers of model-1 could not be used" in summary.stopped
        assert len(server.requests) == 6
        assert [one.decision for one in session.experiments] == ["baseline"]
        unused = list((session.path / ".autokernel/agent/unused").glob("*.json"))
    exchange = json.loads(unused[0].read_text())
    assert len(exchange["turns"]) == 6
    roles = [message["role"] for message in exchange["messages"]]
    assert roles == ["system", *["user", "assistant", "user", "assistant"] * 3]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (fails(429, "slow down"), "HTTP 429"),
        (fails(503, "overloaded"), "HTTP 503"),
        (breaks_off("HYPOTHESIS: x"), "ended before the answer was complete"),
        (disconnects, "connection failed"),
        (babbles, "no JSON"),
        (surprises, "ended before the answer was complete"),
    ],
    ids=["429", "503", "truncated", "disconnect", "no JSON", "odd JSON"],
)
async def test_what_may_pass_is_asked_again(tmp_path, broken, why):
    answers = [broken, broken, broken, says(whole_file(kernel(1.5)))]
    proposal, server = await proposed(tmp_path, answers)

    assert proposal.source == kernel(1.5)
    waits = proposal.trace["turns"][0]["waits"]
    assert [why in wait["why"] for wait in waits] == [True, True, True]
    assert waits[2]["seconds"] > waits[0]["seconds"]
    assert len(server.requests) == 4


@pytest.mark.parametrize("header", [{"Retry_After": "1"}, {"retry_after_ms": "900"}])
async def test_a_wait_that_the_server_asks_for_is_kept(tmp_path, header):
    _, server = await proposed(tmp_path, [fails(429, **header), says(whole_file(kernel(1.5)))])

    assert server.arrivals[1] - server.arrivals[0] >= 0.9


@pytest.mark.parametrize("limit", [{"idle_seconds": 0.7}, {"request_seconds": 1.5}])
async def test_a_server_that_hangs_is_given_up_and_asked_again(tmp_path, limit):
    box = []
    answers = [hangs(box), says(whole_file(kernel(1.5)))]
    with ModelServer(answers) as server:
        box.append(server)
        agent = OpenAIAgent("m", server.base_url, **{**QUICK, **limit})
        proposal = await agent.propose(context_of(tmp_path, kernel(1.0)))

    assert proposal.source == kernel(1.5)
    assert proposal.trace["turns"][0]["waits"][0]["why"] == "no answer in time"


async def test_a_storm_ends_the_run_with_one_clear_error_and_the_run_goes_on_later(tmp_path):
    with ModelServer([fails(429, "slow down")]) as server, new(tmp_path, server, retry_seconds=0.3) as session:
        await session.step()
        with pytest.raises(AgentUnavailable, match=r"HTTP 429.*attempts"):
            await session.step()

        assert len(server.requests) > 2
        server.answers = [says(whole_file(kernel(1.5)))]
        assert (await session.step()).decision == "keep"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (fails(401, f"Incorrect API key provided: {KEY}"), r"HTTP 401.*\[key\].*key_variable"),
        (fails(404, "no such model"), "HTTP 404.*model's name"),
        (fails(429, "pay first", code="insufficient_quota"), "out of credit"),
        (fails(400, "maximum context length is 4096"), "lower prompt_tokens"),
        (fails(400, "max_tokens is too large: 16000; at most 4096"), "answer_tokens"),
    ],
)
async def test_a_refusal_is_final_and_says_what_to_do(tmp_path, answer, message):
    with ModelServer([answer]) as server:
        agent = OpenAIAgent("m", server.base_url, **QUICK)
        with pytest.raises(AgentUnavailable, match=message):
            await agent.propose(context_of(tmp_path, kernel(1.0)))

        assert len(server.requests) == 1


async def test_an_option_that_the_server_refuses_is_left_out(tmp_path):
    answers = [
        fails(400, "Unsupported parameter: 'max_tokens' is not supported with this model."),
        fails(400, "unknown field stream_options"),
        says(whole_file(kernel(1.5)), usage=None),
    ]
    proposal, server = await proposed(tmp_path, answers)

    assert [name for name in ("max_tokens", "stream_options") if name in server.requests[2]] == []
    assert server.requests[2]["max_completion_tokens"] == 16_000
    assert proposal.trace["turns"][0]["usage"]["estimated"] is True


async def test_usage_that_a_server_does_not_tell_is_estimated_and_marked(tmp_path):
    answers = [says(whole_file(kernel(1.5)), usage=None)]
    proposal, server = await proposed(tmp_path, answers)

    usage = proposal.trace["turns"][0]["usage"]
    assert usage["estimated"] is True
    asked = sum(len(message["content"].encode()) for message in server.requests[0]["messages"])
    assert asked / 4 < usage["prompt_tokens"] < asked
    assert proposal.tokens == usage["prompt_tokens"] + usage["answer_tokens"]
    assert agent_files(tmp_path)[0]["estimated"] is True


async def test_the_key_is_nowhere_in_the_run_folder_even_if_the_server_sends_it_back(tmp_path):
    leaky = whole_file(kernel(1.5, extra=f"# {KEY}"), hypothesis=f"with {KEY}")
    experiment, record, server, session = await second_experiment(
        tmp_path, [fails(500, KEY), says(leaky, size=3, reasoning=KEY)]
    )

    assert server.keys == [f"Bearer {KEY}"] * 2
    assert experiment.hypothesis == "with [key]"
    holding = [path for path in session.path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert holding == []
    assert "[key]" in session.folder.source(1)  # git compresses objects, so that is looked at apart
    assert "[key]" in (session.path / ".autokernel/agent/live.txt").read_text()


async def test_the_answer_can_be_watched_while_it_comes_in(tmp_path):
    seen = []
    box = []

    def slowly(handler, body):
        says(whole_file(kernel(1.5)))(handler, body)

    def half(handler, body):
        breaks_off("HYPOTHESIS: half of it \x1b[31m")(handler, body)
        box[0].released.wait(0.01)

    with ModelServer([half, slowly]) as server:
        box.append(server)
        with new(tmp_path, server, first_wait_seconds=0.5) as session:
            await session.step()
            live = session.path / ".autokernel/agent/live.txt"

            async def watch():
                while True:
                    if live.exists():
                        seen.append(live.read_text())
                    await asyncio.sleep(0.02)

            watcher = asyncio.create_task(watch())
            await session.step()
            watcher.cancel()
            last = live.read_text()
    assert any("asks again in" in text for text in seen)
    assert "SPEED = 1.5" in last
    assert not any("\x1b" in text for text in seen)


async def test_a_pause_calls_a_request_off_and_writes_down_what_it_used(tmp_path):
    box = []

    def talks_on(handler, body):
        breaks_off("HYPOTHESIS: I think")(handler, body)
        box[0].released.wait(60)

    with ModelServer([talks_on]) as server:
        box.append(server)
        with new(tmp_path, server) as session:
            await session.step()
            task = asyncio.create_task(session.run(experiments=1))
            live = session.path / ".autokernel/agent/live.txt"
            end = time.monotonic() + 30
            while not (live.exists() and "I think" in live.read_text()):
                assert time.monotonic() < end
                await asyncio.sleep(0.02)
            session.folder.send("stop")
            summary = await asyncio.wait_for(task, 30)

            assert summary.stopped == "a person said stop"
            (used,) = agent_files(session.path)
    assert (used["outcome"], used["estimated"]) == ("called off", True)
    assert used["answer_tokens"] > 0


@pytest.mark.parametrize(
    ("settings", "spent", "experiments"),
    [
        ({"max_experiments": 2}, "2 experiments", 2),
        ({"max_tokens": 45_000, "prompt_tokens": 8000}, "45000 tokens", 2),
        ({"max_cost": 0.45, "input_price": 10.0, "output_price": 20.0, "prompt_tokens": 8000}, "0.45 is spent", 2),
        ({"max_minutes": 1e-6}, "1e-06 minutes", 0),
    ],
)
async def test_a_budget_ends_the_run_and_holds_over_a_restart(tmp_path, settings, spent, experiments):
    answers = [says(whole_file(kernel(1.5 + number / 10)), usage=(20_000, 500)) for number in range(8)]
    with ModelServer(answers) as server:
        with new(tmp_path, server, **settings) as session:
            summary = await session.run(experiments=8)
            assert spent in summary.stopped
            assert len(session.experiments) == 1 + experiments
        before = len(server.requests)
        again = OpenAIAgent("model-1", server.base_url, **{**QUICK, **settings})
        with Session.open(session.path, agent=again, evaluator=ScriptedEvaluator()) as session:
            summary = await session.run(experiments=8)
            assert spent in summary.stopped

        assert len(server.requests) == before


async def test_an_answer_is_never_allowed_more_tokens_than_the_budget_has_left(tmp_path):
    answers = [says(whole_file(kernel(1.5)), usage=(9000, 500))]
    _, server = await proposed(tmp_path, answers, max_tokens=10_000, prompt_tokens=8000)

    asked = sum(len(message["content"].encode()) for message in server.requests[0]["messages"]) / 2.25
    assert server.requests[0]["max_tokens"] <= 10_000 - asked


async def test_several_candidates_of_one_answer_are_tried_in_turn_over_a_restart(tmp_path):
    three = "".join(
        f"CANDIDATE {number}\n" + edit("WRONG = False", f"WRONG = False  # idea {number}", f"idea {number}")
        for number in (1, 2, 3)
    )
    with ModelServer([says(three), says(whole_file(kernel(3.0)))]) as server:
        with new(tmp_path, server, candidates=3) as session:
            await session.step()
            first = await session.step()
            path = session.path
        agent = OpenAIAgent("model-1", server.base_url, **QUICK, candidates=3)
        with Session.open(path, agent=agent, evaluator=ScriptedEvaluator()) as session:
            second, third = await session.step(), await session.step()
            assert len(server.requests) == 1
            fourth = await session.step()

    assert [one.hypothesis for one in (first, second, third)] == ["idea 1", "idea 2", "idea 3"]
    assert [one.tokens for one in (first, second, third, fourth)] == [1200, 0, 0, 1200]
    assert "CANDIDATE 1" in server.question(0)
    assert RunFolder(path).record(3)["trace"]["asked_for"] == 1
    assert fourth.decision == "keep"


async def test_a_waiting_file_is_dropped_when_the_best_kernel_changed_and_an_edit_is_applied_to_the_new_one(tmp_path):
    answers = [
        says(
            "CANDIDATE 1\n" + whole_file(kernel(2.0), "faster") + "CANDIDATE 2\n" + whole_file(kernel(1.2), "a file")
            + "CANDIDATE 3\n" + edit("WRONG = False", "WRONG = False  # note", "an edit")
        )
    ]  # fmt: skip
    with ModelServer(answers) as server, new(tmp_path, server, candidates=3) as session:
        for _ in range(3):
            last = await session.step()

        assert (last.number, last.hypothesis) == (2, "an edit")
        assert "SPEED = 2.0" in session.folder.source(2)
        assert session.folder.record(2)["trace"]["dropped"][0]["why"].startswith("it is a whole file")
        assert len(server.requests) == 1


async def test_what_was_tried_and_why_it_failed_stands_in_the_next_prompt(tmp_path):
    answers = [says(whole_file(kernel(9.0, wrong=True), "a bold idea")), says(whole_file(kernel(1.5)))]
    with ModelServer(answers) as server, new(tmp_path, server) as session:
        await session.step()
        await session.step()
        session.comment("stay away from atomics")
        await session.step()

    question = server.question(1)
    assert "1: rejected; FAIL in smoke; a bold idea" in question
    assert "M=7 N=8 float32 (fail): got 1, expected 2" in question
    assert "+SPEED = 9.0" in question
    assert "> stay away from atomics" in question
    assert "## When it crashes" in question


async def test_a_plateau_changes_the_strategy_and_the_record_shows_it(tmp_path):
    slower = [says(whole_file(kernel(1.0, extra=f"# {number}"))) for number in range(6)]
    with ModelServer([says(whole_file(kernel(2.0))), *slower]) as server, new(tmp_path, server, patience=2) as session:
        for _ in range(7):
            await session.step()
        strategies = [session.folder.record(number)["trace"]["strategy"] for number in range(1, 7)]

    assert [one["name"] for one in strategies] == ["improve"] * 3 + ["next tier"] * 2 + ["restart"]
    assert strategies[3]["tier"] != strategies[0]["tier"]
    assert strategies[5]["ancestor"] == 0
    assert "brought no gain" in server.question(3)
    assert "The kernel of experiment 0, to start again from" in server.question(5)


async def test_edits_may_be_of_an_earlier_kernel(tmp_path):
    based = edit("SPEED = 1.0", "SPEED = 3.0").replace("\n\n<<<", "\nBASE: experiment 0\n<<<")
    answers = [says(whole_file(kernel(2.0))), says(based)]
    with ModelServer(answers) as server, new(tmp_path, server) as session:
        for _ in range(3):
            last = await session.step()

        assert last.decision == "keep"
        assert session.folder.source(2) == kernel(3.0)


async def test_settings_are_kept_beside_the_run_and_found_by_name(tmp_path):
    answers = [says(whole_file(kernel(1.5))), says(whole_file(kernel(2.5)))]
    with ModelServer(answers) as server:
        with new(tmp_path, server, prompt_tokens=9500) as session:
            await session.step()
            await session.step()
        text = (session.path / "agent.toml").read_text()
        with Session.open(session.path, evaluator=ScriptedEvaluator()) as session:
            assert (await session.step()).decision == "keep"

    assert f'base_url = "{server.base_url}"' in text
    assert "prompt_tokens = 9500" in text


def test_the_name_makes_the_agent():
    assert make("openai:gpt-5").name == "openai:gpt-5"
    with pytest.raises(UsageError, match="openai:MODEL"):
        make("openai:")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 9}, "1 to 8"),
        ({"max_cost": 1.0}, "input_price"),
        ({"prompt_tokens": -1}, "above 0"),
        ({"prompt_tokens": True}, "whole number"),
        ({"max_tokens": "many"}, "whole number"),
        ({"colour": "red"}, "unknown agent setting 'colour'"),
        ({"base_url": "localhost:8080"}, "http://localhost"),
        ({"base_url": "https://me:secret@host/v1"}, "environment variable"),
        ({"temperature": float("nan")}, "a number"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        OpenAIAgent("m", **settings)


async def test_without_a_key_or_a_server_it_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        await OpenAIAgent("gpt-5").propose(context_of(tmp_path, kernel(1.0)))


async def test_without_a_key_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    judge = ScriptedEvaluator()
    options = {"device": "cpu", "root": tmp_path, "start": kernel(1.0), "agent": "openai:gpt-5"}
    with Session.create("rmsnorm", **options, evaluator=judge) as session:
        with pytest.raises(UsageError, match="OPENAI_API_KEY"):
            await session.run(experiments=1)
        with pytest.raises(UsageError, match="OPENAI_API_KEY"):
            await session.step()
        path = session.path
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        Session.spawn_detached(path)

    assert judge.judged == []
    assert not session.folder.paths.log.exists()


async def test_a_local_server_needs_no_key(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    proposal, _ = await proposed(tmp_path, [says(whole_file(kernel(1.5)))])

    assert proposal.source == kernel(1.5)


async def test_a_placeholder_for_a_key_is_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    proposal, server = await proposed(tmp_path, [says(whole_file(kernel(1.5)))])

    assert proposal.source == kernel(1.5)
    assert server.keys == ["Bearer x"]
