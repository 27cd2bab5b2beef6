"""The command line: reads arguments, calls the public API, shows what came back.

Commands import what they need when they run, so that ``autokernel --help`` is instant and a GPU
machine with torch, triton, typer and rich alone can run ``verify``, ``bench`` and ``doctor``.

Exit status: 0 done or accepted, 1 rejected, 2 wrong use, 3 our own failure, 130 interrupted.
"""

from autokernel.cli.app import main

__all__ = ["main"]
