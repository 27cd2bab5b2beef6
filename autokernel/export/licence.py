"""The licence file of an exported kernel."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

__all__ = ["LICENCE", "licence_text"]

LICENCE = "MIT"
_NOTE = """The files under _support, the code around the kernel, and what the kernel keeps of AutoKernel's starters are
AutoKernel's, under the licence below.  The rest of the kernel's text is its author's: whoever publishes it decides,
and puts their own licence and name here.

"""


def licence_text() -> str:
    """A note on what is whose, and AutoKernel's licence."""
    try:
        text = metadata.distribution("autokernel").read_text("licenses/LICENSE")
    except metadata.PackageNotFoundError:  # run from a checkout
        text = None
    return _NOTE + (text or (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8"))
