"""One request to a language model's server: streamed, timed, tried again, written down.

The real `openai` client speaks to the server; when to try again is decided here, so that waits are
honoured, shown and recorded.  While an answer comes in, it is written to ``live.txt`` for a person to
watch.  The key is read from the environment for each request and replaced by ``[key]`` in everything
that a server sends back, so it cannot get into a file; a placeholder of a few letters is left alone.

What is asked, and what is done with the answer, is the agent's question.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel.agents.budget import Budget, Usage
from autokernel.agents.faults import Fault, fault_of, refused_option
from autokernel.agents.live import LiveFile
from autokernel.agents.prompt import estimate
from autokernel.agents.settings import ModelSettings, key_of
from autokernel.errors import AgentUnavailable

__all__ = ["Chat", "Reply"]

Message = Mapping[str, str]
_LONGEST_WAIT = 60.0
_NO_KEY = "no-key"  # the client wants one, and local servers take any
_SHORTEST_SECRET = 12  # characters; a shorter key is a placeholder ("EMPTY", "none"), and a word that a kernel may hold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer that came in as a whole.

    Attributes:
        text: What the model wrote.
        reasoning: What it thought before, where the server tells.
        finish: Why it ended: ``stop``, ``length`` (cut off) or what else the server says.
        usage: The tokens.
        seconds: From the request that was answered to the end of the answer.
        waits: What went wrong before, each with ``why`` and the ``seconds`` that were waited.
    """

    text: str
    reasoning: str
    finish: str
    usage: Usage
    seconds: float
    waits: tuple[Mapping[str, Any], ...]


class Chat:
    """Requests to one model for one run.

    Args:
        model: Its name, as the server knows it.
        settings: How it is asked.
        budget: Where usage is written down.
        live: The file that shows the answer while it comes in.
    """

    def __init__(self, model: str, settings: ModelSettings, budget: Budget, live: Path) -> None:
        self._model = model
        self._settings = settings
        self._budget = budget
        self._live = live
        self._limit = "max_tokens" if settings.base_url else "max_completion_tokens"
        self._refused: set[str] = set()
        self._made: tuple[asyncio.AbstractEventLoop, str, Any] | None = None

    async def ask(self, messages: Sequence[Message], allowed: Callable[[int], int]) -> Reply:
        """Ask, and ask again while the server is busy, broken or away.

        Args:
            messages: The conversation, each with ``role`` and ``content``.
            allowed: ``allowed(prompt_tokens)`` is how many tokens the answer may have; called before
                each attempt, and free to raise.

        Raises:
            AgentUnavailable: The server refuses, or did not answer for ``retry_seconds``.
            UsageError: A key is needed and there is none.
        """
        prompt_tokens = sum(estimate(message["content"]) + 8 for message in messages)
        waits: list[dict[str, Any]] = []
        key, end = key_of(self._settings), None
        while True:
            most = allowed(prompt_tokens)
            reply = await self._attempt(messages, prompt_tokens, most, key)
            if isinstance(reply, Reply):
                return dataclasses.replace(reply, waits=tuple(waits))
            option = refused_option(reply, self._options(most))
            if option:
                self._adapt(option)
                continue
            end = time.monotonic() + self._settings.retry_seconds if end is None else end
            wait = self._wait(reply, len(waits))
            if not reply.again or time.monotonic() + wait > end:
                raise AgentUnavailable(self._gave_up(reply, len(waits)))
            waits.append({"why": reply.message, "seconds": round(wait, 3)})
            self._live_note(f"{reply.message}; asks again in {wait:.1f} s")
            await asyncio.sleep(wait)

    async def _attempt(self, messages: Sequence[Message], prompt_tokens: int, most: int, key: str) -> Reply | Fault:
        """One request; whatever it used is written down, even when it is called off."""
        begin, received = time.monotonic(), _Received()
        secret = key if len(key) >= _SHORTEST_SECRET else ""
        outcome = "called off"
        with LiveFile(self._live, f"{self._model}, {time.strftime('%H:%M:%S')}", secret) as live:
            try:
                streaming = self._stream(messages, most, key, received, live)
                await asyncio.wait_for(streaming, timeout=self._settings.request_seconds)
                outcome = received.finish or "cut off"
            except Exception as error:
                fault = fault_of(error, secret)
                if fault is None:
                    raise
                outcome = fault.message
                live.note(outcome)
                return fault
            finally:
                seconds = time.monotonic() - begin
                usage = received.usage or _estimated(prompt_tokens, received)
                if received.begun:
                    self._budget.record(usage, model=self._model, seconds=seconds, outcome=outcome)
        if not received.finish:
            return Fault("the stream ended before the answer was complete")
        return Reply(
            text=_without(received.text, secret), reasoning=_without(received.reasoning, secret),
            finish=_without(received.finish, secret), usage=usage, seconds=seconds, waits=(),
        )  # fmt: skip

    async def _stream(
        self, messages: Sequence[Message], most: int, key: str, received: _Received, live: LiveFile
    ) -> None:
        request: Any = {"model": self._model, "messages": list(messages), "stream": True, **self._options(most)}
        async with await self._client(key).chat.completions.create(**request) as stream:
            received.begun = True
            async for chunk in stream:
                live.write(received.take(chunk))

    def _client(self, key: str) -> Any:
        """The client of this event loop; making one reads all certificates, which takes a while."""
        import openai

        loop = asyncio.get_running_loop()
        if self._made is None or self._made[:2] != (loop, key):
            client = openai.AsyncOpenAI(
                api_key=key or _NO_KEY, base_url=self._settings.base_url, max_retries=0,
                timeout=self._settings.idle_seconds,
            )  # fmt: skip
            self._made = loop, key, client
        return self._made[2]

    def _options(self, most: int) -> dict[str, Any]:
        """What is sent beside model and messages; what the server refused is left out."""
        options: dict[str, Any] = {self._limit: most, "stream_options": {"include_usage": True}}
        if self._settings.temperature is not None:
            options["temperature"] = self._settings.temperature
        return {name: value for name, value in options.items() if name not in self._refused}

    def _adapt(self, option: str) -> None:
        """Leave an option out from now on; the limit goes under its other name first."""
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(option, "")
        self._refused.add(option)
        if other and other not in self._refused:
            self._limit = other

    def _wait(self, fault: Fault, failures: int) -> float:
        """Seconds to wait: what the server asks for, and no less than the back-off."""
        backoff = min(_LONGEST_WAIT, self._settings.first_wait_seconds * 2**failures)
        return max(fault.wait_seconds or 0.0, backoff * random.uniform(1.0, 1.25))

    def _gave_up(self, fault: Fault, failures: int) -> str:
        where = self._settings.base_url or "the server"
        what = f"{where} did not answer for {self._model!r}: {fault.message}"
        if not fault.again:
            return f"{what}; {fault.advice or 'correct that, and continue the run'}"
        asked = f" (it asks for {fault.wait_seconds:.0f} s)" if fault.wait_seconds else ""
        return (
            f"{what}, after {failures + 1} attempts{asked}; nothing is lost, continue the run later, or raise "
            "retry_seconds in agent.toml"
        )

    def _live_note(self, text: str) -> None:
        with LiveFile(self._live, f"{self._model}, {time.strftime('%H:%M:%S')}", "") as live:
            live.note(text)


class _Received:
    """What has come in of an answer so far."""

    def __init__(self) -> None:
        self.begun = False
        self.text = ""
        self.reasoning = ""
        self.finish = ""
        self.usage: Usage | None = None

    def take(self, chunk: Any) -> str:
        """Add a chunk; returns the text that it brought.  What is no chunk of a chat adds nothing."""
        self._take_usage(getattr(chunk, "usage", None))
        news = ""
        choices = getattr(chunk, "choices", None)
        for choice in choices if isinstance(choices, list) else ():
            delta = getattr(choice, "delta", None)
            content = getattr(delta, "content", None)
            thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
            if isinstance(thought, str):
                self.reasoning += thought
                news += thought
            if isinstance(content, str):
                self.text += content
                news += content
            finish = getattr(choice, "finish_reason", None)
            self.finish = finish if isinstance(finish, str) else self.finish
        return news

    def _take_usage(self, usage: Any) -> None:
        counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        if all(isinstance(count, int) and count >= 0 for count in counts) and any(counts):
            self.usage = Usage(prompt_tokens=counts[0] or 0, answer_tokens=counts[1] or 0)


def _estimated(prompt_tokens: int, received: _Received) -> Usage:
    answer = estimate(received.text) + estimate(received.reasoning)
    return Usage(prompt_tokens=prompt_tokens, answer_tokens=answer, estimated=True)


def _without(text: str, secret: str) -> str:
    return text.replace(secret, "[key]") if secret else text
