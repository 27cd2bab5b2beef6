"""The options of ``new`` that say how a language model is asked; they end up in the run's agent.toml."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autokernel.errors import UsageError

if TYPE_CHECKING:
    from autokernel.agents.settings import ModelSettings

__all__ = ["BaseUrlOption", "SettingOption", "model_settings"]

BaseUrlOption = Annotated[
    str | None, typer.Option(help="With --agent openai:MODEL: its server, such as http://localhost:8080/v1.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--agent-setting", help="With --agent openai:MODEL: a line of agent.toml, NAME=VALUE; repeatable."),
]


def model_settings(agent: str, base_url: str | None, texts: Sequence[str] | None) -> ModelSettings | None:
    """How the language model is asked; None for an agent that is none.

    Args:
        agent: As given to ``--agent``.
        base_url: As given to ``--base-url``.
        texts: As given to ``--agent-setting``: ``candidates=3``, ``max_cost=2.5``.

    Raises:
        UsageError: The agent is no language model, a setting is unknown or wrong, or the key that it needs is missing.
    """
    if not agent.startswith("openai:"):
        if base_url is not None or texts:
            raise UsageError(f"--base-url and --agent-setting are for --agent openai:MODEL, not for {agent!r}")
        return None
    from autokernel.agents.settings import ModelSettings, key_of

    values: dict[str, Any] = {} if base_url is None else {"base_url": base_url}
    for text in texts or ():
        name, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"cannot read the agent setting {text!r}; write NAME=VALUE, such as candidates=3")
        values[name.strip()] = _value(value.strip())
    settings = ModelSettings().replaced(values)
    key_of(settings)  # a missing key is said now, and not after the first measurement
    return settings


def _value(text: str) -> Any:
    """A number where it is one, else the text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, (int, float)) else text
