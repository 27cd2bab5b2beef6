"""A prompt within a budget of tokens: parts in their order, each with a rank, the least needed left out.

Parts of rank 0 are always there: the question, the contract, the kernel.  The others are added in the
order of their ranks while they fit; one that does not fit is left out, and a later, shorter one may
still fit.  What is left out is named, in the prompt and in the record.

What another wrote (kernels, diffs, compiler output) goes between fences that it cannot close.

Tokens are estimated, because each model counts differently and most servers do not say before: one per
2.25 bytes of UTF-8, which is on the safe side (see `estimate`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence

from autokernel.errors import UsageError
from autokernel.plaintext import clean

__all__ = ["Part", "Prompt", "assemble", "estimate", "fenced"]

_BYTES_PER_TOKEN = 2.25
_FENCES = re.compile(r"`{3,}")
_ROOM_FOR_NOTE = 40


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of a prompt.

    Attributes:
        name: Short; stands in the record.
        text: In Markdown.
        rank: 0 is never left out; among the others the lowest is added first.
        system: It belongs to the system message, which stays the same from request to request.
    """

    name: str
    text: str
    rank: float = 0
    system: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """What a model is sent first.

    Attributes:
        system: The system message.
        user: The first message of the user.
        tokens: Of both, estimated.
        held: Names of the parts that are in it.
        left_out: Names of the parts that did not fit.
    """

    system: str
    user: str
    tokens: int
    held: tuple[str, ...]
    left_out: tuple[str, ...]


def estimate(text: str) -> int:
    """Tokens of a text, estimated: its UTF-8 bytes divided by 2.25, rounded up.

    A tokenizer with a small vocabulary (SmolLM2, 49 152 entries) makes one token of 2.38 to 2.9 bytes of
    the starters and the manual; larger vocabularies make fewer.  ``make test-llm`` counts them.

    >>> estimate("BLOCK_N = 1024")
    7
    """
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def fenced(text: str, kind: str = "text", *, limit: int = 100_000) -> str:
    """Text that another wrote, between fences that are longer than any in it.

    Args:
        text: Terminal escapes and invisible characters are removed.
        kind: What stands behind the opening fence.
        limit: The most characters; what was cut is said.

    >>> print(fenced("a\\n```\\nb"))
    ````text
    a
    ```
    b
    ````
    """
    body = clean(text, limit=limit).strip("\n")
    longest = max((len(found) for found in _FENCES.findall(body)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{body}\n{fence}"


def assemble(parts: Sequence[Part], budget: int) -> Prompt:
    """Choose the parts that fit and put them together, in the order in which they were given.

    Args:
        parts: All that could be said.
        budget: Most tokens, estimated.

    Raises:
        UsageError: The parts of rank 0 alone are above the budget.
    """
    needed = [index for index, part in enumerate(parts) if part.rank == 0]
    tokens = sum(_cost(parts[index]) for index in needed)
    if tokens > budget:
        raise UsageError(
            f"prompt_tokens is {budget}, but the kernel, the contract and the question alone need about {tokens}; "
            "raise it in agent.toml"
        )
    chosen = set(needed)
    tokens += _ROOM_FOR_NOTE
    for index in sorted(range(len(parts)), key=lambda index: parts[index].rank):
        if index not in chosen and tokens + _cost(parts[index]) <= budget:
            chosen.add(index)
            tokens += _cost(parts[index])
    held = [part for index, part in enumerate(parts) if index in chosen]
    left_out = tuple(part.name for index, part in enumerate(parts) if index not in chosen)
    system, user = _joined(held, system=True), _joined(held, system=False)
    if left_out and tokens <= budget:
        user += f"\n\n({len(left_out)} parts of the manual and the record did not fit here and were left out.)"
    return Prompt(
        system=system, user=user, tokens=estimate(system) + estimate(user), held=tuple(part.name for part in held),
        left_out=left_out,
    )  # fmt: skip


def _cost(part: Part) -> int:
    return estimate(part.text) + 2  # and the empty line between parts


def _joined(parts: Iterable[Part], *, system: bool) -> str:
    return "\n\n".join(part.text.strip("\n") for part in parts if part.system is system)
