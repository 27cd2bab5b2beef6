"""Commands that make experiments: ``new``, ``run``, ``step``, ``submit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autokernel.cli.arguments import (
    AgentOption,
    ApprovalOption,
    BackendOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    RootOption,
    ShapeOption,
    SpecOption,
    WorkersOption,
    one_of,
    parse_shapes,
    read_kernel,
    reference_of,
)
from autokernel.cli.console import emit_json, say
from autokernel.cli.locating import ROOT, find_run, split_run
from autokernel.cli.modeling import BaseUrlOption, SettingOption, model_settings
from autokernel.errors import UsageError

if TYPE_CHECKING:
    from autokernel.experiment import Experiment

__all__ = ["register"]

RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help="A run's folder or name.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the application."""
    for command in (new, run, step, submit):
        app.command()(command)


def new(
    operation: Annotated[str | None, typer.Argument(metavar="OPERATION", show_default=False)] = None,
    spec: SpecOption = None,
    backend: BackendOption = "auto",
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    shape: ShapeOption = None,
    root: RootOption = ROOT,
    name: Annotated[str | None, typer.Option(help="Name of the run; OPERATION-1, -2, ... when not given.")] = None,
    approval: ApprovalOption = "auto",
    agent: AgentOption = "auto",
    base_url: BaseUrlOption = None,
    agent_setting: SettingOption = None,
    start: Annotated[
        Path | None, typer.Option("--from", help="Kernel file to start from, or tuned: the tuned kernel.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a run for an operation, or for a --spec file."""
    if operation is None and spec is None:
        raise UsageError("say what to optimise: autokernel new rmsnorm, or autokernel new --spec my_op.py")
    if start is not None and str(start) != "tuned":
        read_kernel(start)
    reference = reference_of(operation, spec)
    shapes = parse_shapes(shape)
    model = model_settings(agent, base_url, agent_setting)

    from autokernel.session import Session

    session = Session.create(
        reference, backend=backend, device=device, dtype=dtype, shapes=shapes, root=root, name=name,
        agent=agent, approval=approval, start="tuned" if str(start) == "tuned" else start,
    )  # fmt: skip
    try:
        if model is not None:
            from autokernel.agents.settings import save

            save(session.path, model)
        status = session.status
    finally:
        session.close()
    if as_json:
        from autokernel.cli.tables import status_data

        emit_json(status_data(status))
    else:
        say(f"created {status.path}: {status.operation}, {status.backend}, {status.dtype} on {status.device}")
        say(f"next: autokernel run {status.path}")


def run(
    run: RunArgument = None,
    experiments: Annotated[int, typer.Option(min=1, help="How many experiments to make.")] = 20,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many minutes.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Drive the run in the background and return.")] = False,
    approval: Annotated[
        str | None, typer.Option(callback=one_of("auto", "approve"), help="Change who decides.")
    ] = None,
    workers: WorkersOption = None,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Make experiments; continues a run that was stopped.

    It ends when there are enough, when the time is up, or when the agent has nothing more to try."""
    path = find_run(run, root, acts=True)
    if detach:
        from autokernel.session import Session

        pid = Session.spawn_detached(path, experiments=experiments, minutes=minutes, approval=approval, workers=workers)
        if as_json:
            emit_json({"run": str(path), "pid": pid})
        else:
            say(f"process {pid} drives {path} now; watch: autokernel status {path}; end: autokernel stop {path}")
        return
    from autokernel.cli.driving import announce, drive, finish
    from autokernel.cli.tables import show_summary, summary_data

    if not as_json:
        announce(path, experiments)
    work = drive(path, experiments=experiments, minutes=minutes, approval=approval, quiet=as_json, workers=workers)
    summary = finish(path, work)
    if as_json:
        emit_json(summary_data(summary))
    else:
        show_summary(summary)


def step(run: RunArgument = None, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Make one experiment."""
    from autokernel.cli.driving import finish, one_step

    path = find_run(run, root, acts=True)
    experiment = finish(path, one_step(path, quiet=as_json))
    _show_experiment(experiment, as_json=as_json)


def submit(
    words: Annotated[list[str], typer.Argument(metavar="[RUN] FILE", help="A run, and the kernel file to judge.")],
    hypothesis: Annotated[str, typer.Option(help="What the change should bring, and why.")],
    agent: Annotated[str, typer.Option(help="Who wrote it; stands in results.tsv.")] = "external",
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Hand in a kernel file as an experiment.

    It is judged, and kept or reverted; exit 1 if verification rejects it."""
    name, file = split_run(words, "FILE")
    source = read_kernel(Path(file))
    path = find_run(name, root, acts=True)
    from autokernel.cli.driving import finish, one_submission

    work = one_submission(path, source, hypothesis=hypothesis, agent=agent, quiet=as_json)
    experiment = finish(path, work)
    _show_experiment(experiment, as_json=as_json)
    raise typer.Exit(0 if experiment.passed else 1)


def _show_experiment(experiment: Experiment, *, as_json: bool) -> None:
    from autokernel.cli.tables import experiment_line

    if as_json:
        emit_json(experiment.to_dict())
    else:
        say(experiment_line(experiment))
        say(experiment.reason)
