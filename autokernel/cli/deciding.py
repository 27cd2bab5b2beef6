"""Commands to the process that drives a run: ``keep``, ``revert``, ``comment``, ``pause``, ``resume``, ``stop``."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
