"""A language model as agent, behind any server that speaks OpenAI's chat completions.

Each proposal begins a new conversation with everything that matters now; an answer that cannot be used
gets one further turn that says why.  When several candidates were asked for, the first is proposed and
the others wait in its trace, so that a restart finds them.  The agent keeps nothing else: what was spent
is in ``usage.jsonl``, how it is asked in ``agent.toml``.

Files, in ``.autokernel/agent/`` of the run: ``live.txt`` shows the answer while it comes in,
``usage.jsonl`` lists what every request used, ``unused/`` holds exchanges that led to no experiment.
The exchange that led to one is the ``trace`` of its record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autokernel import files
from autokernel.agents import settings as agent_toml
from autokernel.agents.briefing import Briefing, trace_of
from autokernel.agents.budget import Budget
from autokernel.agents.chat import Chat, Reply
from autokernel.agents.edits import Candidate, UnusableAnswer, applied, objection, parse
from autokernel.agents.protocol import Context, Exhausted, Proposal
from autokernel.agents.settings import ModelSettings, key_of
from autokernel.agents.subject import subject_of
from autokernel.errors import UsageError
from autokernel.history import blob_id
from autokernel.plaintext import one_line

__all__ = ["OpenAIAgent"]

_CONVERSATIONS = 3  # that end without a candidate, after which the model counts as unable
_TURNS = 2  # an answer, and one repair


@dataclasses.dataclass(frozen=True)
class _Run:
    """What belongs to one run folder."""

    settings: ModelSettings
    budget: Budget
    chat: Chat
    briefing: Briefing


class OpenAIAgent:
    """Proposes what a language model answers.

    Args:
        model: Its name, as the server knows it.
        base_url: The server's address; as in agent.toml, or the client's default, when None.
        settings: Other fields of `ModelSettings`.  What is given here goes before agent.toml, which is
            written with these values if the run has none.

    Raises:
        UsageError: The model has no name, or a setting is unknown or wrong.
    """

    def __init__(self, model: str, base_url: str | None = None, **settings: Any) -> None:
        if not model.strip():
            raise UsageError("the model has no name; write openai:MODEL, such as openai:gpt-5")
        self.name = f"openai:{model}"
        self._model = model
        self._given = settings if base_url is None else {"base_url": base_url, **settings}
        ModelSettings().replaced(self._given)
        self._runs: dict[Path, _Run] = {}

    async def propose(self, context: Context) -> Proposal:
        """Return the next candidate: one that waits from the last answer, or a new answer.

        Raises:
            Exhausted: A budget is spent, or the model's answers cannot be used.
            AgentUnavailable: The server refuses, or is away.
            UsageError: There is no key, or a setting is wrong.
        """
        begin = time.monotonic()
        run = await self._run(context)
        run.budget.allow(0, experiments=self._made(context))
        waiting = self._waiting(context)
        if waiting is not None:
            return waiting
        trace: dict[str, Any] = {"format": 1, "model": self._model, "base_url": run.settings.base_url}
        trace |= {"messages": [], "turns": []}
        try:
            sources = await self._ask(context, run, trace)
        except BaseException:
            _keep_unused(context.folder, trace)
            raise
        candidate, source = sources[0]
        trace["queue"] = [one.to_dict() for one, _ in sources[1:]]
        tokens = sum(turn["usage"]["prompt_tokens"] + turn["usage"]["answer_tokens"] for turn in trace["turns"])
        return Proposal(
            source=source, hypothesis=candidate.hypothesis, tokens=tokens, seconds=time.monotonic() - begin, trace=trace
        )

    async def _ask(self, context: Context, run: _Run, trace: dict[str, Any]) -> list[tuple[Candidate, str]]:
        """Converse until there is a candidate."""
        prompt, strategy = run.briefing.prompt(context)
        trace |= {
            "strategy": strategy.to_dict(), "best": context.best.number,
            "prompt": {"tokens_estimated": prompt.tokens, "parts": prompt.held, "left_out": prompt.left_out},
        }  # fmt: skip
        problem = ""
        made = self._made(context)
        for _ in range(_CONVERSATIONS):
            before = f"\n\nAn earlier answer could not be used: {problem}" if problem else ""
            messages = [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user + before},
            ]
            trace["messages"] += messages if not trace["messages"] else messages[1:]
            for _ in range(_TURNS):
                reply = await run.chat.ask(messages, lambda tokens: run.budget.allow(tokens, experiments=made))
                sources, problem = _read(reply, context, run.settings)
                answer = {"role": "assistant", "content": reply.text or "(nothing)"}
                trace["messages"].append({**answer, "reasoning": reply.reasoning} if reply.reasoning else answer)
                trace["turns"].append(_turn(reply, problem, run.settings))
                if sources:
                    return sources
                messages += [answer, _repair(problem)]
                trace["messages"].append(messages[-1])
            trace["messages"].pop()  # the last was not sent
        raise Exhausted(f"{_CONVERSATIONS * _TURNS} answers of {self._model} could not be used; the last: {problem}")

    def _waiting(self, context: Context) -> Proposal | None:
        """The next candidate of the last answer, as long as it fits what has happened since."""
        own = [one for one in context.experiments if one.agent == self.name]
        if not own or context.comments or context.refused:
            return None
        trace = trace_of(context, own[-1].number)
        queue = trace.get("queue")
        dropped = []
        for at, data in enumerate(queue if isinstance(queue, list) else ()):
            try:
                candidate = Candidate.from_dict(data)
                source = _source(candidate, context)
            except (UnusableAnswer, TypeError, AttributeError) as error:
                dropped.append({"candidate": data, "why": str(error)})
                continue
            if candidate.source is not None and trace.get("best") != context.best.number:
                dropped.append({"candidate": data, "why": "it is a whole file, and the best kernel is another now"})
                continue
            assert isinstance(queue, list)
            asked = trace.get("asked_for", own[-1].number)
            kept = {name: trace.get(name) for name in ("format", "model", "base_url", "strategy", "best")}
            news = {"asked_for": asked, "queue": queue[at + 1 :], "dropped": dropped}
            return Proposal(source=source, hypothesis=candidate.hypothesis, tokens=0, trace={**kept, **news})
        return None

    def _made(self, context: Context) -> int:
        return sum(one.agent == self.name for one in context.experiments)

    async def _run(self, context: Context) -> _Run:
        """The run's settings, budget and facts; read when it is first seen."""
        if context.folder not in self._runs:
            found, settings = self._settings(context.folder)
            if found is None:
                agent_toml.save(context.folder, settings)
            subject = await asyncio.to_thread(subject_of, context.target)
            budget = Budget(context.folder, settings)
            chat = Chat(self._model, settings, budget, _folder(context.folder) / "live.txt")
            self._runs[context.folder] = _Run(settings, budget, chat, Briefing(subject, settings))
        return self._runs[context.folder]

    def check_ready(self, folder: Path) -> None:
        """Make sure that the model can be asked: agent.toml is right, and the key is there if one is needed.

        Raises:
            UsageError: It is not.
        """
        key_of(self._settings(folder)[1])

    def _settings(self, folder: Path) -> tuple[ModelSettings | None, ModelSettings]:
        """What agent.toml says, None if there is none, and how the model is asked."""
        found = agent_toml.load(folder)
        return found, (found or ModelSettings()).replaced(self._given)


def _read(reply: Reply, context: Context, settings: ModelSettings) -> tuple[list[tuple[Candidate, str]], str]:
    """The candidates of an answer with their texts, and why the others (or all) cannot be used."""
    sources: list[tuple[Candidate, str]] = []
    problems = []
    try:
        candidates = parse(reply.text, most=settings.candidates)
    except UnusableAnswer as error:
        cut = "the answer was cut off at the limit of tokens, so give edits; " if reply.finish == "length" else ""
        return [], f"{cut}{error}"
    for number, candidate in enumerate(candidates, 1):
        try:
            source = _source(candidate, context)
            if source in (text for _, text in sources):
                raise UnusableAnswer("it is the same as another candidate of this answer")
            sources.append((candidate, source))
        except UnusableAnswer as error:
            problems.append(f"candidate {number}: {error}" if len(candidates) > 1 else str(error))
    return sources, "; ".join(problems)


def _source(candidate: Candidate, context: Context) -> str:
    """The text of a candidate, if it can be handed in.

    Raises:
        UnusableAnswer: It cannot.
    """
    kernel = context.kernel
    if candidate.base is not None and candidate.source is None:
        if candidate.base not in {one.number for one in context.experiments}:
            raise UnusableAnswer(f"BASE names experiment {candidate.base}, which does not exist")
        kernel = context.source(candidate.base)
    source = applied(candidate, kernel)
    target = context.target
    problem = objection(source, operation=target.operation, backend=target.backend)
    if problem:
        raise UnusableAnswer(problem)
    identity = blob_id(source)
    if identity in context.judged:
        known = next(one for one in context.experiments if one.blob == identity)
        reason = one_line(known.reason, limit=200)
        raise UnusableAnswer(f"this text was judged already, as experiment {known.number} ({reason}); change something")
    return source


def _turn(reply: Reply, problem: str, settings: ModelSettings) -> dict[str, Any]:
    """One answer in figures, and what was wrong with it."""
    return {
        "finish": reply.finish,
        "usage": dataclasses.asdict(reply.usage),
        "cost": reply.usage.cost(settings),
        "seconds": round(reply.seconds, 3),
        "waits": list(reply.waits),
        "problem": problem,
    }


def _repair(problem: str) -> dict[str, str]:
    """What a model is told whose answer cannot be used."""
    text = (
        f"That cannot be used: {problem}.\n\nAnswer again, in full, in one of the two forms: a line HYPOTHESIS, then "
        "the whole kernel.py in one fenced block, or SEARCH/REPLACE edits."
    )
    return {"role": "user", "content": text}


def _keep_unused(folder: Path, trace: Mapping[str, Any]) -> None:
    """Keep an exchange that led to no experiment; what it used is in the ledger anyway."""
    if trace["turns"]:
        place = _folder(folder) / "unused"
        place.mkdir(parents=True, exist_ok=True)
        files.write_atomic(place / f"{time.time_ns()}.json", json.dumps(trace))


def _folder(run: Path) -> Path:
    return run / ".autokernel" / "agent"
