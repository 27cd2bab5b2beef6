"""The agents: whatever proposes the next candidate."""

from __future__ import annotations

from autokernel.agents.protocol import Agent, Context, Exhausted, Proposal
from autokernel.errors import UsageError

__all__ = ["NAMES", "Agent", "Context", "Exhausted", "Proposal", "make"]

NAMES = ("auto", "search", "human", "replay:RUN", "openai:MODEL")


def make(name: str) -> Agent:
    """Return the agent that ``name`` means; nothing is read from the environment.

    Args:
        name: ``search`` (also ``auto``): mutates the declared constants.  ``human``: waits for
            edits of kernel.py.  ``replay:RUN``: proposes what was proposed in the run folder RUN.
            ``openai:MODEL``: a language model; how it is asked is in the run's agent.toml.

    Raises:
        UsageError: No agent is called so, or the recorded run is none.
    """
    kind, _, argument = name.partition(":")
    if kind in ("auto", "search") and not argument:
        from autokernel.agents.search import SearchAgent

        return SearchAgent()
    if kind == "human" and not argument:
        from autokernel.agents.human import HumanAgent

        return HumanAgent()
    if kind == "replay" and argument:
        from autokernel.agents.replay import ReplayAgent

        return ReplayAgent(argument)
    if kind == "openai" and argument:
        from autokernel.agents.openai import OpenAIAgent

        return OpenAIAgent(argument)
    raise UsageError(f"unknown agent {name!r}; known: {', '.join(NAMES)}")
