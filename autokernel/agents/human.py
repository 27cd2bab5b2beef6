"""A person as agent: edits ``kernel.py`` in the run folder, and each saved version is judged.

A version is taken when it has stood unchanged for a moment, so that a save in progress is not.
A person who works elsewhere hands a file in with ``autokernel submit``.
"""

from __future__ import annotations

import asyncio

from autokernel.agents.protocol import Context, Proposal
from autokernel.history import blob_id

__all__ = ["HumanAgent"]


class HumanAgent:
    """Waits until kernel.py differs from every version that was judged.

    Args:
        settle_seconds: How long a version must stand unchanged.
        poll_seconds: How often the file is looked at.
    """

    name = "human"
    edits_kernel = True  # the working copy is the proposal, so the session leaves it alone

    def __init__(self, settle_seconds: float = 1.0, poll_seconds: float = 0.2) -> None:
        self._settle_seconds = settle_seconds
        self._poll_seconds = poll_seconds

    async def propose(self, context: Context) -> Proposal:
        """Wait for a new version of the folder's kernel.py."""
        path = context.folder / "kernel.py"
        seen, since = "", 0.0
        while True:
            text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
            if text != seen:
                seen, since = text, 0.0
            elif text.strip() and blob_id(text) not in context.judged and since >= self._settle_seconds:
                return Proposal(source=text, hypothesis="edit of kernel.py in the run folder")
            await asyncio.sleep(self._poll_seconds)
            since += self._poll_seconds
