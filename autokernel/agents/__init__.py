"""The agents: whatever proposes the next candidate."""

from __future__ import annotations

from pathlib import Path

from autokernel.agents.protocol import Agent, Context, Exhausted, Proposal
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean

__all__ = ["NAMES", "Agent", "Context", "Exhausted", "Proposal", "check", "make", "ready"]

NAMES = ("auto", "search", "human", "replay:RUN", "openai:MODEL")


def check(name: str) -> None:
    """Make sure, without loading one, that an agent is called ``name``.

    Raises:
        UsageError: None is; the message lists those that there are.
    """
    kind, _, argument = name.partition(":")
    needs_argument = {known.partition(":")[0]: ":" in known for known in NAMES}
    if kind not in needs_argument or bool(argument) != needs_argument[kind]:
        raise UsageError(f"unknown agent {name!r}{did_you_mean(kind, needs_argument)}; known: {', '.join(NAMES)}")


def make(name: str) -> Agent:
    """Return the agent that ``name`` means; nothing is read from the environment.

    Args:
        name: ``search`` (also ``auto``): mutates the declared constants.  ``human``: waits for
            edits of kernel.py.  ``replay:RUN``: proposes what was proposed in the run folder RUN.
            ``openai:MODEL``: a language model; how it is asked is in the run's agent.toml.

    Raises:
        UsageError: No agent is called so, or the recorded run is none.
    """
    check(name)
    kind, _, argument = name.partition(":")
    if kind == "human":
        from autokernel.agents.human import HumanAgent

        return HumanAgent()
    if kind == "replay":
        from autokernel.agents.replay import ReplayAgent

        return ReplayAgent(argument)
    if kind == "openai":
        from autokernel.agents.openai import OpenAIAgent

        return OpenAIAgent(argument)
    from autokernel.agents.search import SearchAgent

    return SearchAgent()


def ready(agent: str | Agent, folder: Path) -> Agent:
    """Return the agent (made, if it is a name) after it was asked whether it can work in the run at ``folder``.

    An agent may have a method ``check_ready(folder)`` that raises what would keep it from proposing anything, so
    that it shows before the first measurement.

    Raises:
        UsageError: No agent is called so, or it lacks something, such as a key.
    """
    made = make(agent) if isinstance(agent, str) else agent
    check_ready = getattr(made, "check_ready", None)
    if check_ready is not None:
        check_ready(folder)
    return made
