"""agent.toml: how a language model is asked in one run; beside target.toml, and editable like it.

It names the server, the limits of a request and the budgets of the run.  It holds no key: the key
stays in the environment, in the variable that ``key_variable`` names.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autokernel import files
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.target import toml_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FILE", "ModelSettings", "key_of", "load", "save"]

FILE = "agent.toml"
_COMMENT = (
    "# How the language model is asked.  The key is in the environment only, in the variable that key_variable names.\n"
    "# A limit that is commented out does not apply.  docs/agents.md explains each line.\n"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """How a language model is asked.

    Attributes:
        base_url: The server's address, up to and with ``/v1``; the client's default (OPENAI_BASE_URL,
            or OpenAI) when None.
        key_variable: The environment variable that holds the key.
        prompt_tokens: Most tokens of a prompt, estimated (`autokernel.agents.prompt.estimate`).
        answer_tokens: Most tokens of an answer, those that a model spends on reasoning included.
        temperature: As the server takes it; not sent when None.
        candidates: How many candidates are asked for in one answer, 1 to 8.
        recent: Of how many of the last experiments the prompt tells details.
        patience: After how many experiments without a gain the strategy changes.
        request_seconds: Most time of one request.
        idle_seconds: Most time without a sign of the server.
        retry_seconds: For how long a server that is busy, broken or away is asked again.
        first_wait_seconds: The first wait before that; it doubles each time, up to a minute.
        max_experiments: End when the run has so many experiments of this agent.
        max_minutes: Begin no request after so many minutes since the first of this process.
        max_tokens: Spend at most so many tokens in the run.
        max_cost: Spend at most so much in the run, in the currency of the prices.
        input_price: Price of a million tokens of prompts.
        output_price: Price of a million tokens of answers.
    """

    base_url: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    prompt_tokens: int = 28_000
    answer_tokens: int = 16_000
    temperature: float | None = None
    candidates: int = 1
    recent: int = 8
    patience: int = 4
    request_seconds: float = 900.0
    idle_seconds: float = 180.0
    retry_seconds: float = 300.0
    first_wait_seconds: float = 1.0
    max_experiments: int | None = None
    max_minutes: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    input_price: float | None = None
    output_price: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_kind(field.name, getattr(self, field.name), str(field.type))
        if not 1 <= self.candidates <= 8:
            raise UsageError(f"candidates is {self.candidates!r}; ask for 1 to 8 in one answer")
        if self.max_cost is not None and (self.input_price is None or self.output_price is None):
            raise UsageError(
                f"max_cost is {self.max_cost:g}, but what tokens cost is unknown; give input_price and output_price, "
                "each for a million tokens"
            )
        if self.base_url is not None:
            _check_url(self.base_url)

    def replaced(self, values: Mapping[str, Any]) -> ModelSettings:
        """These settings with other values.

        Raises:
            UsageError: A setting is unknown, or its value is none for it.
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in values:
            if name not in known:
                raise UsageError(
                    f"unknown agent setting {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"
                )
        return dataclasses.replace(self, **values)

    def to_toml(self) -> str:
        """The text of agent.toml."""
        lines = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            lines.append(f"# {field.name} = " if value is None else f"{field.name} = {toml_value(value)}")
        return _COMMENT + "\n".join(lines) + "\n"


def key_of(settings: ModelSettings) -> str:
    """The key, from the environment; "" where there is none and the server may need none.

    Raises:
        UsageError: There is none, and without a server's address OpenAI is asked, which needs one.
    """
    variable = settings.key_variable
    key = os.environ.get(variable, "").strip()
    if not key and settings.base_url is None and not os.environ.get("OPENAI_BASE_URL"):
        raise UsageError(
            f"no key in the environment variable {variable}, and no --base-url; set the variable, or name a server "
            "that needs none, such as --base-url http://localhost:8080/v1"
        )
    return key


def load(folder: Path) -> ModelSettings | None:
    """Read the agent.toml of a run folder; None if it has none.

    Raises:
        UsageError: The file cannot be read, or holds a setting that is unknown or wrong.
    """
    path = folder / FILE
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return ModelSettings().replaced(values)
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, UsageError) as error:
        raise UsageError(f"{path} cannot be read: {error}; correct it") from None


def save(folder: Path, settings: ModelSettings) -> None:
    """Write the agent.toml of a run folder.

    Raises:
        RunUnwritable: The folder cannot be written.
    """
    files.write_atomic(folder / FILE, settings.to_toml())


def _check_kind(name: str, value: Any, kind: str) -> None:
    """A number is above 0 (a temperature or a price may be 0); text is text."""
    if value is None and "None" in kind:
        return
    if kind.startswith("str"):
        good = isinstance(value, str) and bool(value.strip())
        what = "text"
    else:
        whole = kind.startswith("int")
        least = 0 if name in ("temperature", "input_price", "output_price") else 1e-9
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        good = number and least <= value < float("inf")
        what = "a whole number above 0" if whole else "a number" + (", 0 or more" if least == 0 else " above 0")
    if not good:
        raise UsageError(f"agent setting {name} is {value!r}; it must be {what}")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"base_url is {url!r}; give an address such as http://localhost:8080/v1")
    if parts.username or parts.password or parts.query:
        shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
        raise UsageError(
            f"base_url {shown} carries a user name, a password or a query, which would be written to {FILE}; "
            "put the key into the environment variable that key_variable names"
        )
