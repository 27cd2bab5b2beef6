"""Commands that judge a file or a machine and keep nothing: ``verify``, ``bench``, ``doctor``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autokernel.cli.arguments import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    OperationOption,
    ShapeOption,
    SpecOption,
    parse_shapes,
    parse_stages,
    read_kernel,
    reference_of,
)
from autokernel.cli.console import emit_json, live_progress, say

if TYPE_CHECKING:
    from autokernel.evaluator import Evaluation
    from autokernel.ops import KernelSpec, TimingCase

__all__ = ["register"]

KernelFile = Annotated[Path, typer.Argument(help="A kernel.py.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    app.command()(verify)
    app.command()(bench)
    app.command()(doctor)


def verify(
    file: KernelFile,
    operation: OperationOption = None,
    spec: SpecOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this verification stage; repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs; fresh when not given.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="A kind of finding that does not reject, such as library_call; repeatable.")
    ] = None,
    large: Annotated[
        bool | None,
        typer.Option("--large/--no-large", help="Offsets beyond 2**31 elements; on a GPU by default, where memory is."),
    ] = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Run an accepted kernel under NVIDIA's compute-sanitizer too (GPU).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Judge a kernel file: accept (exit 0) or reject (exit 1)."""
    stages = parse_stages(stage)
    source = read_kernel(file)
    reference = reference_of(operation, spec, source, file)

    from autokernel.evaluator import Evaluator, EvaluatorSettings

    settings = EvaluatorSettings(allow=tuple(allow or ()), large=large, sanitize=sanitize)
    with (
        live_progress(f"verifying {file.name}", quiet=as_json) as progress,
        Evaluator(reference, device=device, dtype=dtype, settings=settings, progress=progress) as evaluator,
    ):
        verdict = evaluator.verify(source, seed=seed, stages=stages)
    if as_json:
        emit_json(verdict.to_dict())
    else:
        from autokernel.cli.rendering import show_verdict

        show_verdict(verdict)
    raise typer.Exit(0 if verdict.accepted else 1)


def bench(
    file: KernelFile,
    incumbent: Annotated[Path | None, typer.Option(help="A second kernel file to time against.")] = None,
    operation: OperationOption = None,
    spec: SpecOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    shape: ShapeOption = None,
    compile: Annotated[bool, typer.Option("--compile", help="Time torch.compile of the baseline too.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs; fresh when not given.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a kernel file, then time it beside PyTorch.

    A kernel that verification rejects is not timed (exit 1)."""
    source = read_kernel(file)
    rival = None if incumbent is None else read_kernel(incumbent)
    reference = reference_of(operation, spec, source, file)
    shapes = parse_shapes(shape)

    from autokernel import ops
    from autokernel.evaluator import Evaluator

    cases = None if shapes is None else timing_cases(ops.resolve(reference), shapes, dtype)
    with (
        live_progress(f"timing {file.name}", quiet=as_json) as progress,
        Evaluator(reference, device=device, dtype=dtype, timing_cases=cases, progress=progress) as evaluator,
    ):
        evaluation = evaluator.evaluate(source, incumbent=rival, seed=seed, compiled=compile)
    if as_json:
        emit_json(
            {
                "verdict": evaluation.verdict.to_dict(),
                "measurement": evaluation.measurement and evaluation.measurement.to_dict(),
                "confirmation": evaluation.confirmation and evaluation.confirmation.to_dict(),
                "seconds": evaluation.seconds,
            }
        )
    else:
        _show(evaluation)
    raise typer.Exit(0 if evaluation.verdict.accepted else 1)


def _show(evaluation: Evaluation) -> None:
    from autokernel.cli.rendering import conclusion, show_measurement, show_verdict

    if not evaluation.verdict.accepted:
        show_verdict(evaluation.verdict)
        say("Not timed: the kernel was rejected.")
        return
    if evaluation.measurement is None:
        say("Not timed: this device gives no real times for the kernel.")
    for title, measurement in (("", evaluation.measurement), ("Again, on fresh inputs:", evaluation.confirmation)):
        if measurement is not None:
            say(title)
            show_measurement(measurement)
    say(conclusion(evaluation.verdict))


def timing_cases(spec: KernelSpec, shapes: list[dict[str, int]], dtype: str | None) -> list[TimingCase]:
    """Timing cases with equal weights for the shapes of the command line.

    Raises:
        UsageError: A shape has other names of sizes than the spec's.
    """
    from autokernel.errors import UsageError
    from autokernel.ops import TimingCase

    wanted = set(spec.shapes[0])
    for shape in shapes:
        if set(shape) != wanted:
            raise UsageError(
                f"the shape {','.join(f'{name}={size}' for name, size in shape.items())} does not fit {spec.name!r}; "
                f"it takes {', '.join(spec.shapes[0])}"
            )
    return [TimingCase(shape=shape, dtype=dtype or spec.dtypes[0], options=spec.options[0]) for shape in shapes]


def doctor(device: DeviceOption = "auto", as_json: JsonOption = False) -> None:
    """Show the device, what is missing, and how to get it.

    Exit 1 if something is missing without which no run can start.
    """
    from autokernel.doctor import diagnose, render

    with live_progress("looking at this machine", quiet=True):
        report = diagnose(device)
    if as_json:
        emit_json(report.to_dict())
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(render(report, color=colour, width=shutil.get_terminal_size((110, 24)).columns))
    raise typer.Exit(0 if report.ready else 1)
