"""Commands over KernelBench problems: ``kernelbench new``, ``run``, ``score``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autokernel.cli.arguments import AgentOption, BackendOption, DeviceOption, DtypeOption, JsonOption
from autokernel.cli.console import complain, console, emit_json, say, text
from autokernel.cli.modeling import BaseUrlOption, SettingOption, model_settings
from autokernel.cli.tables import experiment_line
from autokernel.errors import UsageError
from autokernel.hints import did_you_mean
from autokernel.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autokernel.kernelbench import Collection, Entry, Score
    from autokernel.kernelbench.score import ProblemScore
    from autokernel.plots.fastp import FastP

__all__ = ["register"]

ROOT = Path("kernelbench-runs")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A collection's folder or name.")]
RootOption = Annotated[Path, typer.Option(help="Folder that holds the collections.")]
LevelOption = Annotated[list[int] | None, typer.Option(min=1, max=9, help="Only this level; repeatable.")]
ProblemOption = Annotated[list[str] | None, typer.Option(help="Only problems whose names contain this; repeatable.")]


def register(app: typer.Typer) -> None:
    """Add the group ``kernelbench`` to the application."""
    group = typer.Typer(help="Problems in KernelBench's format: judge candidates for them, and score.")
    for command in (new, run, score):
        group.command()(command)
    app.add_typer(group, name="kernelbench", no_args_is_help=True)


def new(
    folder: Annotated[Path, typer.Argument(help="Folder with the problems, such as a clone's KernelBench.")],
    level: LevelOption = None,
    problem: ProblemOption = None,
    name: Annotated[str, typer.Option(help="Name of the collection; one that is there is added to.")] = "kernelbench",
    device: DeviceOption = "auto",
    backend: BackendOption = "auto",
    dtype: DtypeOption = "float32",
    agent: AgentOption = "auto",
    base_url: BaseUrlOption = None,
    agent_setting: SettingOption = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Leave torch.compile out.")] = False,
    library: Annotated[
        bool, typer.Option("--library", help="Let PyTorch's operators do the work of candidates; said in the score.")
    ] = False,
    most_mb: Annotated[float, typer.Option(min=0.001, help="Halve a problem's sizes until a call fits.")] = 512.0,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Make a run for each problem of a folder; the problem files are executed.

    A problem that cannot be judged is refused, with the reason."""
    from autokernel import agents
    from autokernel.creation import choose_backend, choose_device
    from autokernel.kernelbench import Collection, Settings, find_problems

    files = find_problems(folder, level or (), problem or ())
    agents.check(agent)
    model = model_settings(agent, base_url, agent_setting)
    found = choose_device(device)
    preferred = "cpp" if found == "cpu" else "triton"
    chosen = choose_backend("", "auto", found, f'BACKEND = "{preferred if backend == "auto" else backend}"')
    settings = Settings(
        device=found, backend=chosen, dtype=dtype or "float32", agent=agent, compiled=not no_compile, library=library,
        most_mb=most_mb,
    )  # fmt: skip
    collection = Collection.begin(root / name, settings)
    for entry in collection.add(files, _tell):
        if model is not None and entry.facts is not None:
            from autokernel.agents.settings import save

            save(collection.run(entry.name).path, model)
        if not as_json:
            _show_entry(entry)
    if as_json:
        emit_json(json.loads((collection.path / "plan.json").read_text()))
        return
    refused = sum(1 for one in collection.entries.values() if one.refused)
    say(f"{len(collection.entries) - refused} problems in {collection.path}, {refused} refused")
    say(f"next: autokernel kernelbench run {collection.path}")


def run(
    name: NameArgument,
    experiments: Annotated[
        int, typer.Option(min=0, help="So many for each problem; the baseline is judged anyway.")
    ] = 0,
    candidates: Annotated[
        Path | None, typer.Option(help="Judge the files in this folder, called as the problems are.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Begin no problem after so many minutes.")] = None,
    level: LevelOption = None,
    problem: ProblemOption = None,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Judge baselines, given candidates and an agent's proposals; continues where it was stopped.

    Exit 1 if not all could be done: a given file is no candidate, or the judging failed."""
    from autokernel.kernelbench import candidates as find_candidates

    collection = _find(name, root)
    entries = collection.select(level or (), problem or ())
    given = None if candidates is None else find_candidates(candidates, entries)
    if given is not None:
        entries = [one for one in entries if one.name in given]
    work = _work(collection, entries, experiments, minutes, given, quiet=as_json)
    try:
        failed = asyncio.run(work)
    except KeyboardInterrupt:
        complain(f"stopped; nothing is lost, continue with: autokernel kernelbench run {collection.path}")
        raise typer.Exit(130) from None
    if as_json:
        emit_json({"failed": failed, **_scored(collection, entries).to_dict()})
    else:
        say(f"next: autokernel kernelbench score {collection.path}")
    raise typer.Exit(1 if failed else 0)


def score(
    name: NameArgument,
    level: LevelOption = None,
    problem: ProblemOption = None,
    figure: Annotated[Path | None, typer.Option(help="Draw fast_p, to .html, .svg, .png or .pdf.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write the table, to .tex, .md or .csv.")] = None,
    root: RootOption = ROOT,
    as_json: JsonOption = False,
) -> None:
    """Show fast_p by level, each problem, and where the benchmark's own check says otherwise."""
    from autokernel.plots.fastp import fast_p, fast_p_table
    from autokernel.plots.saving import save

    collection = _find(name, root)
    found = _scored(collection, collection.select(level or (), problem or ()))
    levels = _levels(found)
    if figure is not None:
        save(fast_p(levels), figure)
    if table is not None:
        fast_p_table(levels).save(table)
    if as_json:
        settings = collection.settings
        emit_json({"device": settings.device, "dtype": settings.dtype, "library": settings.library, **found.to_dict()})
        return
    _show_score(found, levels, library=collection.settings.library)
    for file in (figure, table):
        if file is not None:
            say(f"written: {file}")


async def _work(
    collection: Collection,
    entries: Sequence[Entry],
    experiments: int,
    minutes: float | None,
    given: dict[str, list[Path]] | None,
    *,
    quiet: bool,
) -> dict[str, str]:
    """Work on the problems, print what became of each, and return why not all was done for some."""
    from autokernel.kernelbench import work

    failed = {}
    async for one in work(collection, entries, experiments=experiments, minutes=minutes, given=given, tell=_tell):
        if one.failed:
            failed[one.entry.name] = one.failed
        if quiet:
            continue
        say(one.entry.name)
        for experiment in one.experiments:
            say(f"  {experiment_line(experiment)}")
        if one.failed:
            say(f"  not all was done: {one_line(one.failed, limit=400)}")
        sys.stdout.flush()
    return failed


def _tell(words: str) -> None:
    """Show what is being done: on a terminal, in one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\033[K{one_line(words, limit=100)}\r", end="", file=sys.stderr, flush=True)


def _find(name: str, root: Path) -> Collection:
    from autokernel.kernelbench import Collection
    from autokernel.kernelbench.collection import FILE

    for path in (Path(name), root / name):
        if (path / FILE).is_file():
            return Collection(path)
    known = sorted(plan.parent.name for plan in root.glob(f"*/{FILE}"))
    there = f" (there are: {', '.join(known)})" if known else ""
    raise UsageError(
        f"no KernelBench collection {name!r}{did_you_mean(name, known)}, neither as a folder nor under "
        f"{str(root)!r}{there}; make one with `autokernel kernelbench new FOLDER`"
    )


def _scored(collection: Collection, entries: Sequence[Entry]) -> Score:
    from autokernel.kernelbench import score as scored

    return scored(collection, entries)


def _levels(found: Score) -> list[FastP]:
    from autokernel.plots.fastp import FastP

    return [FastP(one.name, one.problems, one.refused, one.fast) for one in found.levels]


def _show_entry(entry: Entry) -> None:
    if entry.facts is None:
        say(f"{entry.name}: refused: {one_line(entry.refused, limit=400)}")
        return
    sizes = " ".join(f"{word}={size}" for word, size in entry.facts.own_shape.items())
    say(f"{entry.name}: {sizes}, {len(entry.facts.weights)} weights")
    for note in entry.facts.notes:
        say(f"  {note}")
    sys.stdout.flush()


def _show_score(found: Score, levels: Sequence[FastP], *, library: bool) -> None:
    from rich.table import Table

    from autokernel.plots.fastp import fast_p_table

    shares = fast_p_table(levels)
    table = Table(box=None, pad_edge=False)
    for column in shares.columns:
        table.add_column(column, justify="left" if column in ("level", "rival") else "right", no_wrap=True)
    for row in shares.rows:
        table.add_row(*(text(f"{cell:.0f}" if isinstance(cell, float) else cell) for cell in row))
    console().print(table)
    say(shares.note)
    if library:
        say("PyTorch's operators were allowed to do the work (--library): this is no score of own kernels alone.")
    say()
    for one in found.problems:
        say(_problem_line(one))
        for number, why in one.deceived:
            say(f"  experiment {number}: the benchmark's check is content, ours is not: {one_line(why, limit=300)}")
        for number, why in one.severe:
            say(
                f"  experiment {number}: accepted, and the benchmark's check is not content: {one_line(why, limit=300)}"
            )


def _problem_line(one: ProblemScore) -> str:
    if one.refused:
        return f"{one.name}: refused: {one_line(one.refused, limit=300)}"
    if one.best is None:
        return f"{one.name}: {one.state}, {one.right} of {one.candidates} candidates right"
    names = {"pytorch": "PyTorch", "compile": "torch.compile"}
    speeds = [
        f"{ratio.value:.2f}x {names[rival]} ({ratio.low:.2f} to {ratio.high:.2f})"
        for rival, ratio in one.speedups.items()
    ]
    times = ", ".join(speeds) or "not timed here"
    return f"{one.name}: {one.right} of {one.candidates} candidates right; experiment {one.best}: {times}"
