"""The file that shows what a language model writes while it writes it: ``tail -f`` for a person.

It begins anew with each request.  Nobody reads it back: the whole exchange is in the experiment's
record.  Losing it loses nothing, so it is not synced, and a disk that is full does not stop a run here.
"""

from __future__ import annotations

import contextlib
import unicodedata
from pathlib import Path
from types import TracebackType
from typing import IO

__all__ = ["LiveFile"]


class LiveFile:
    """Text that grows; a context manager.

    Args:
        path: The file; its folder is made.
        title: Its first line.
        secret: A text that must not get into it, even when it comes in pieces; "" for none.
    """

    def __init__(self, path: Path, title: str, secret: str) -> None:
        self._path = path
        self._title = title
        self._secret = secret
        self._held = ""
        self._file: IO[str] | None = None

    def __enter__(self) -> LiveFile:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "w", encoding="utf-8", errors="replace")
        self._put(f"--- {self._title}\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._put(self._held)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def write(self, text: str) -> None:
        """Add text; what could be the beginning of the secret waits for what follows."""
        if not text:
            return
        text = self._held + text
        keep = 0
        if self._secret:
            text = text.replace(self._secret, "[key]")
            starts = range(min(len(self._secret) - 1, len(text)), 0, -1)
            keep = next((length for length in starts if text.endswith(self._secret[:length])), 0)
        self._held = text[len(text) - keep :]
        self._put(text[: len(text) - keep])

    def note(self, text: str) -> None:
        """Add a line that is not the model's."""
        self._put(f"\n--- {text}\n")

    def _put(self, text: str) -> None:
        if self._file is None or not text:
            return
        shown = "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs"))
        with contextlib.suppress(OSError):
            self._file.write(shown)
            self._file.flush()
