"""Commands over a campaign, the runs of one model: ``campaign new``, ``run``, ``status``, ``results``, ``stop``."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autokernel import ops
from autokernel.cli.arguments import (
    AgentOption,
    ApprovalOption,
    BackendOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    WorkersOption,
)
from autokernel.cli.console import complain, console, emit_json, say, text
from autokernel.cli.modeling import model_settings
from autokernel.cli.tables import experiment_line
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.plaintext import one_line

if TYPE_CHECKING:
    from autokernel.campaign import Campaign, CampaignSummary
    from autokernel.campaign_plan import CampaignTarget

__all__ = ["register"]

ROOT = Path("campaigns")
_POLL_SECONDS = 0.3

NameArgument = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="A campaign's folder or name.")]
RootOption = Annotated[Path, typer.Option(help="Folder that holds the campaigns.")]


def register(app: typer.Typer) -> None:
    """Add the group ``campaign`` to the application."""
    group = typer.Typer(help="Optimise several operations of one model, in the order of what each offers.")
    for command in (new, run, status, results, stop):
        group.command()(command)
    app.add_typer(group, name="campaign", no_args_is_help=True)


def new(
    target: Annotated[
        list[str] | None,
        typer.Option(help="OPERATION=SHARE, such as softmax=0.21: its part of the model's time; repeatable."),
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="A report that `autokernel profile --save FILE` wrote.")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Of a profile, take so many targets.")] = None,
    model: Annotated[str, typer.Option(help="What the shares were measured on.")] = "",
    name: Annotated[str | None, typer.Option(help="Name of the campaign; campaign-1, -2, ... when not given.")] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = None,
    backend: BackendOption = "auto",
    agent: AgentOption = "auto",
    approval: ApprovalOption = "auto",
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Create a campaign with a run for each target."""
    if bool(target) == (profile is not None):
        raise UsageError("say what to optimise: either --target OPERATION=SHARE, once or more, or --profile FILE")
    if profile is None:
        targets = [_target(word, dtype, backend) for word in target or ()]
    else:
        model, targets = _profiled(profile, most, dtype, backend, model)

    model_settings(agent, None, None)

    from autokernel.campaign import Campaign

    campaign = Campaign.create(
        targets, model=model, root=root, name=name, device=device, agent=agent, approval=approval
    )
    if as_json:
        emit_json(_data(campaign))
    else:
        say(f"created {campaign.path} with the runs {', '.join(campaign.runs)}")
        say(f"next: autokernel campaign run {campaign.path}")


def run(
    campaign: NameArgument,
    experiments: Annotated[int | None, typer.Option(min=1, help="How many, over all targets.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many minutes.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Stop after so many language-model tokens.")] = None,
    workers: WorkersOption = None,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Work on the targets in turns; continues a campaign that was stopped.

    It ends when a budget is used up, or when no target offers enough of the model's time any more."""
    opened = _find(campaign, root)
    try:
        with _on_workers(opened, workers) as driven:
            summary = asyncio.run(_drive(driven, experiments, minutes, tokens, quiet=as_json))
    except KeyboardInterrupt:
        complain(f"stopped; nothing is lost, continue with: autokernel campaign run {opened.path}")
        raise typer.Exit(130) from None
    if as_json:
        emit_json({**_data(opened), "summary": vars(summary)})
    else:
        say()
        _show(opened)
        say(f"stopped: {summary.stopped}")


def status(campaign: NameArgument, root: RootOption = ROOT, as_json: JsonOption = False) -> None:
    """Show how each target stands, what comes next and why, and the predicted speedup of the model."""
    opened = _find(campaign, root)
    if as_json:
        emit_json(_data(opened))
    else:
        _show(opened)


def results(campaign: NameArgument, root: RootOption = ROOT) -> None:
    """Print the rows of all runs as one results.tsv."""
    from autokernel.results import COLUMNS

    print("\t".join(COLUMNS))
    for row in _find(campaign, root).rows():
        fields = row.fields()
        print("\t".join(fields[column] for column in COLUMNS))


def stop(campaign: NameArgument, root: RootOption = ROOT) -> None:
    """Stop a campaign after the experiment in progress."""
    opened = _find(campaign, root)
    if opened.driver is None:
        raise UsageError(f"nobody drives {opened.path}, so there is nothing to stop")
    opened.stop()
    say("stop: sent; it ends after the experiment in progress")


def _target(word: str, dtype: str | None, backend: str) -> CampaignTarget:
    from autokernel.campaign_plan import CampaignTarget

    operation, equals, share = word.rpartition("=")
    try:
        if not equals:
            raise ValueError
        fraction = float(share)
    except ValueError:
        raise UsageError(
            f"cannot read the target {word!r}; write it as OPERATION=SHARE, such as softmax=0.21"
        ) from None
    ops.check(operation)
    return CampaignTarget(operation=operation, share=fraction, dtype=dtype, backend=backend)


def _profiled(
    file: Path, most: int | None, dtype: str | None, backend: str, model: str
) -> tuple[str, list[CampaignTarget]]:
    """The model's name and the targets of a profile, in another dtype or backend if that is asked for."""
    from autokernel.profiling import ProfileReport

    report = ProfileReport.load(file)
    for note in report.notes:
        complain(f"the profile says: {note}")  # the shares, and what is predicted from them, are as good as the profile
    found = report.campaign_targets(most=most, backend=backend)
    return model or report.model, [_in_dtype(one, dtype) for one in found]


def _in_dtype(target: CampaignTarget, dtype: str | None) -> CampaignTarget:
    """The target in another dtype than the model's, whose times say nothing about that one."""
    if dtype is None or dtype == target.dtype:
        return target
    timing = tuple(dataclasses.replace(one, model_us=None) for one in target.timing)
    return dataclasses.replace(target, dtype=dtype, timing=timing)


def _find(name: str, root: Path) -> Campaign:
    from autokernel.campaign import Campaign
    from autokernel.campaign_plan import FILE

    for path in (Path(name), root / name):
        if (path / FILE).is_file():
            return Campaign(path)
    known = sorted(plan.parent.name for plan in root.glob(f"*/{FILE}") if not plan.parent.name.startswith("."))
    there = f" (there are: {', '.join(known)})" if known else ""
    raise UsageError(
        f"no campaign {name!r}{did_you_mean(name, known)}, neither as a folder nor under {str(root)!r}{there}"
    )


@contextlib.contextmanager
def _on_workers(campaign: Campaign, workers: str | None) -> Iterator[Campaign]:
    """The campaign with the judges that ``--workers`` asks for, on as many targets at once as they can judge."""
    if workers is None:
        yield campaign
        return
    from autokernel.campaign import Campaign
    from autokernel.workers import DaskEvaluator, open_workers

    device = next(iter(campaign.runs.values())).target.device
    with open_workers(workers, device=device) as client:
        lanes = DaskEvaluator(client).lanes
        at_once = min(lanes, len(campaign.runs))
        most = -(-lanes // at_once)  # for each target, rounded up
        yield Campaign(campaign.path, judge_of=lambda name: DaskEvaluator(client, most=most), at_once=at_once)


async def _drive(
    campaign: Campaign, experiments: int | None, minutes: float | None, tokens: int | None, *, quiet: bool
) -> CampaignSummary:
    seen = max((event["seq"] for event in campaign.events()), default=0)
    watcher = asyncio.create_task(_follow(campaign, seen, quiet=quiet))
    try:
        return await campaign.run(experiments, minutes, tokens)
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


async def _follow(campaign: Campaign, seen: int, *, quiet: bool) -> None:
    """Print what is chosen (events above number ``seen``) and what is decided, until cancelled."""
    shown = {name: {one.number for one in run.experiments if one.decision} for name, run in campaign.runs.items()}
    try:
        while True:
            seen = _show_news(campaign, seen, shown, quiet=quiet)
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        _show_news(campaign, seen, shown, quiet=quiet)


def _show_news(campaign: Campaign, seen: int, shown: dict[str, set[int]], *, quiet: bool) -> int:
    lines = []
    for name, run in campaign.runs.items():
        for one in run.experiments:
            if one.decision and one.number not in shown[name]:
                shown[name].add(one.number)
                lines.append(f"{one_line(name):<20} {experiment_line(one)}")
    for event in campaign.events(seen):
        seen = event["seq"]
        if event["kind"] == "turn":
            lines.append(f"-> {one_line(event['target'])}: {one_line(event['reason'], limit=200)}")
        elif event["kind"] == "failed":
            lines.append(f"{one_line(event['target'])} failed: {one_line(event['error'], limit=300)}")
    for line in () if quiet else lines:
        say(line)
    sys.stdout.flush()
    return seen


def _show(campaign: Campaign) -> None:
    from rich.table import Table

    from autokernel.scheduler import offer

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("target", "share", "speedup", "over", "ceiling", "offers", "experiments", "without gain", "note"):
        words = name in ("target", "over", "note")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "note")
    for one in campaign.standings:
        ceiling = "" if one.ceiling is None else f"{one.ceiling:.2f}x"
        offered = f"{100 * offer(one, campaign.plan.scheduler):.2g} %"
        speedup, over = (f"{one.speedup:.3f}x", one.over) if one.measured else ("not yet", "")
        cells = (one.name, f"{100 * one.share:.1f} %", speedup, over, ceiling, offered)
        table.add_row(*map(text, (*cells, one.experiments, one.idle, one.finished)))
    console().print(table)
    say(f"model: {campaign.model_speedup:.3f}x predicted from the kernels kept so far (Amdahl)")
    if campaign.driver is not None:
        say(f"driven by process {campaign.driver.get('pid')} since {campaign.driver.get('since')}")
    choice = campaign.next
    say(f"next: {choice.name or 'nothing'}, {choice.reason}")


def _data(campaign: Campaign) -> dict[str, Any]:
    choice = campaign.next
    return {
        "campaign": str(campaign.path),
        "model": campaign.plan.model,
        "targets": [{**vars(one), "run": str(campaign.runs[one.name].path)} for one in campaign.standings],
        "model_speedup": campaign.model_speedup,
        "next": vars(choice),
        "driver": campaign.driver,
    }
