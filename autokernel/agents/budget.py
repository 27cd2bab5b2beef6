"""What a language model has cost in a run, and what may still be spent.

Each request adds a line to ``.autokernel/agent/usage.jsonl`` when it ends, however it ends, so a
budget holds over restarts.  Where a server does not say how many tokens it used, they are estimated,
and the line says so.

Units: tokens, seconds, prices per million tokens in a currency of the user's.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autokernel import files
from autokernel.agents.protocol import Exhausted
from autokernel.agents.settings import ModelSettings

__all__ = ["Budget", "Usage", "ledger"]

_LEAST_ANSWER = 256  # fewer tokens hold no kernel, so a request for them would be wasted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """What one request used.

    Attributes:
        prompt_tokens: Of the prompt.
        answer_tokens: Of the answer, reasoning included.
        estimated: The server did not say, so both are estimates.
    """

    prompt_tokens: int
    answer_tokens: int
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.answer_tokens

    def cost(self, settings: ModelSettings) -> float | None:
        """What it cost by the prices that the user gave, or None without prices."""
        if settings.input_price is None or settings.output_price is None:
            return None
        return (self.prompt_tokens * settings.input_price + self.answer_tokens * settings.output_price) / 1e6


def ledger(folder: Path) -> Path:
    """The file of a run that lists what every request used."""
    return folder / ".autokernel" / "agent" / "usage.jsonl"


class Budget:
    """The budget of one run.

    Args:
        folder: The run folder.
        settings: The limits and the prices.
    """

    def __init__(self, folder: Path, settings: ModelSettings) -> None:
        self._path = ledger(folder)
        self._settings = settings
        self._begin: float | None = None
        self.tokens, self.cost = 0, 0.0
        files.cut_torn_tail(self._path)
        for entry in files.read_jsonl(self._path)[0]:
            self._add(entry)

    def record(self, usage: Usage, *, model: str, seconds: float, outcome: str, **more: Any) -> None:
        """Write down what a request used.

        Args:
            usage: The tokens.
            model: Its name.
            seconds: From the request to its end.
            outcome: How it ended, in a few words.
            more: What else is worth keeping; JSON-ready.

        Raises:
            RunUnwritable: The line could not be written.
        """
        entry = {
            "time": files.now(), "model": model, **dataclasses.asdict(usage), "cost": usage.cost(self._settings),
            "seconds": round(seconds, 3), "outcome": outcome, **more,
        }  # fmt: skip
        with files.writable(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        files.append(self._path, json.dumps(entry).encode() + b"\n")
        self._add(entry)

    def allow(self, prompt_tokens: int, *, experiments: int) -> int:
        """Say how many tokens the next answer may have, so that no budget is overdrawn.

        Args:
            prompt_tokens: Of the prompt, estimated.
            experiments: How many this agent has made in the run.

        Returns:
            At most ``answer_tokens`` of the settings.

        Raises:
            Exhausted: A budget is spent, or what is left of it does not suffice for an answer.
        """
        settings, now = self._settings, time.monotonic()
        self._begin = now if self._begin is None else self._begin
        if settings.max_experiments is not None and experiments >= settings.max_experiments:
            raise Exhausted(f"its budget of {settings.max_experiments} experiments is spent")
        minutes = (now - self._begin) / 60
        if settings.max_minutes is not None and minutes >= settings.max_minutes:
            raise Exhausted(f"its budget of {settings.max_minutes:g} minutes is spent")
        most = settings.answer_tokens
        if settings.max_tokens is not None:
            most = min(most, settings.max_tokens - self.tokens - prompt_tokens)
            if most < min(_LEAST_ANSWER, settings.answer_tokens):
                raise Exhausted(
                    f"its budget of {settings.max_tokens} tokens is spent: {self.tokens} were used, and the next "
                    f"prompt has about {prompt_tokens}"
                )
        if settings.max_cost is not None:
            most = min(most, self._affordable(prompt_tokens))
            if most < min(_LEAST_ANSWER, settings.answer_tokens):
                raise Exhausted(f"its budget of {settings.max_cost:g} is spent: {self.cost:.4f} were used")
        return most

    def _affordable(self, prompt_tokens: int) -> int:
        """Tokens of an answer that what is left of the money pays, after the prompt."""
        settings = self._settings
        assert settings.max_cost is not None and settings.input_price is not None and settings.output_price is not None
        left = settings.max_cost - self.cost - prompt_tokens * settings.input_price / 1e6
        if settings.output_price == 0:
            return settings.answer_tokens if left >= 0 else 0
        return int(left / settings.output_price * 1e6)

    def _add(self, entry: Mapping[str, Any]) -> None:
        used = Usage(
            prompt_tokens=int(entry.get("prompt_tokens") or 0), answer_tokens=int(entry.get("answer_tokens") or 0)
        )
        self.tokens += used.tokens
        self.cost += used.cost(self._settings) or 0.0  # by today's prices, which may have been added later
