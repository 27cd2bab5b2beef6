"""The context of a run that somebody else drives, or nobody: for agents from outside.

They get the same prompt as a language model inside the loop, with another way to answer.
"""

from __future__ import annotations

from autokernel.agents.briefing import Briefing
from autokernel.agents.protocol import Context
from autokernel.agents.settings import ModelSettings
from autokernel.agents.subject import subject_of
from autokernel.errors import UsageError
from autokernel.journal import JournalReader
from autokernel.runfolder import RunFolder

__all__ = ["briefing_text", "context_of"]


def context_of(run: RunFolder) -> Context:
    """What an agent may know now; imports torch for the operation's description.

    Raises:
        UsageError: The baseline is not judged yet, so there is nothing to improve.
    """
    from autokernel import ops

    best = run.best
    if best is None:
        raise UsageError(f"the baseline of {run.path} is not judged yet; do that first: autokernel step {run.path}")
    spec = ops.resolve(run.target.reference)
    experiments = tuple(run.experiments)
    return Context(
        folder=run.path,
        target=run.target,
        description=spec.description,
        signature=spec.signature,
        kernel=run.source(best.number),
        best=best,
        experiments=experiments,
        judged=frozenset(one.blob for one in experiments),
        comments=tuple(JournalReader(run.paths.journal).state().comments),
        refused="",
        source=run.source,
        diff=run.diff,
        record=run.record,
    )


def briefing_text(run: RunFolder, answer: str, *, tokens: int = 28_000) -> str:
    """Manual, target, best kernel and what was tried, as one text.

    Args:
        run: The run.
        answer: How the next candidate is to be handed in, in Markdown.
        tokens: Most tokens, estimated (`autokernel.agents.prompt.estimate`).

    Raises:
        UsageError: The baseline is not judged yet, or the kernel alone is above ``tokens``.
    """
    context = context_of(run)
    settings = ModelSettings().replaced({"prompt_tokens": tokens})
    prompt, _ = Briefing(subject_of(context.target), settings, introduction=answer).prompt(context)
    return f"{prompt.system}\n\n{prompt.user}"
