"""The Typer application: how commands are grouped, and how errors become exit statuses."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

import autokernel
from autokernel.cli import (
    benchmark_problems,
    benchmarking,
    campaigning,
    deciding,
    exporting,
    integrating,
    judging,
    opening,
    outside,
    plotting,
    profiling,
    running,
    viewing,
)
from autokernel.cli.console import complain
from autokernel.errors import AutokernelError, UsageError

__all__ = ["EXIT_FAILURE", "EXIT_INTERRUPTED", "EXIT_USAGE", "app", "main"]

EXIT_USAGE, EXIT_FAILURE, EXIT_INTERRUPTED = 2, 3, 130


class _Commands(typer.core.TyperGroup):
    """Turns what a command raises into one message on stderr and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            complain(error)
            raise typer.Exit(EXIT_USAGE) from None
        except (AutokernelError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            complain(error)
            raise typer.Exit(EXIT_FAILURE) from None
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"autokernel {autokernel.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Optimise one kernel by verified, measured experiments.",
    epilog="Exit status: 0 done or accepted, 1 rejected, 2 wrong use, 3 failure of AutoKernel, 130 interrupted.",
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


judging.register(app)
benchmarking.register(app)
benchmark_problems.register(app)
running.register(app)
campaigning.register(app)
deciding.register(app)
viewing.register(app)
plotting.register(app)
integrating.register(app)
exporting.register(app)
opening.register(app)
profiling.register(app)
outside.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    Args:
        arguments: Without the program's name; ``sys.argv[1:]`` when None.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that is not UTF-8 shows ? instead of failing
    try:
        app(args=None if arguments is None else list(arguments), prog_name="autokernel")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:
        # Status 1 means "rejected"; an error of ours must never read like a verdict.
        traceback.print_exc()
        complain("this is an error in AutoKernel itself; please report the lines above")
        return EXIT_FAILURE
    return 0
