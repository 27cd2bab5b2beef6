"""The command ``plot``: figures of runs, for the screen and for papers, with the tables behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autokernel.cli.arguments import RootOption, one_of
from autokernel.cli.console import complain, say
from autokernel.cli.locating import ROOT, find_run
from autokernel.errors import UsageError
from autokernel.plaintext import clean

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from autokernel.hardware.measure import MeasuredPeaks
    from autokernel.measurement import Ratio
    from autokernel.plots import Part, Series, Table
    from autokernel.profiling import ProfileReport

__all__ = ["register"]

_KINDS = ("progress", "speedup", "roofline", "amdahl", "ablation")
_CAMPAIGNS = Path("campaigns")

RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN ...]", help="Runs, campaigns, results.tsv files, JSON of `bench`.", show_default=False
    ),
]
OutputOption = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", help="File to write: .html, .png, .svg or .pdf; repeatable. [KIND.html]"),
]


def register(app: typer.Typer) -> None:
    """Add the command of this module to the application."""
    app.command()(plot)


def plot(
    runs: RunsArgument = None,
    kind: Annotated[
        str, typer.Option(callback=one_of(*_KINDS), help="progress, speedup, roofline, amdahl or ablation.")
    ] = "progress",
    output: OutputOption = None,
    table: Annotated[Path | None, typer.Option(help="Write the table behind it, as .tex, .md or .csv.")] = None,
    columns: Annotated[int | None, typer.Option(help="For print: 1 (3.5 in) or 2 (7.16 in) columns wide.")] = None,
    title: Annotated[str, typer.Option(help="Above the figure.", show_default=False)] = "",
    label: Annotated[list[str] | None, typer.Option(help="What to call a run; once for each, in order.")] = None,
    by: Annotated[str, typer.Option(help="Of ablation: tier, tag, or step (each kept kernel).")] = "tier",
    profile: Annotated[Path | None, typer.Option(help="Saved profile: for amdahl, and a roofline's peaks.")] = None,
    speedup: Annotated[list[str] | None, typer.Option(help="Of amdahl: TARGET=2.0; repeatable.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Of a roofline: GB/s.")] = None,
    peak: Annotated[float | None, typer.Option(help="Of a roofline: TFLOP/s.")] = None,
    root: RootOption = ROOT,
) -> None:
    """Draw runs, for the screen or for a paper."""
    if kind == "amdahl":
        figure, data = _amdahl(runs or [], profile, speedup or [], title, columns)
    else:
        series = _series(runs, root, label or [])
        if kind == "roofline":
            figure, data = _roofline(series, profile, bandwidth, peak, title, columns)
        else:
            figure, data = _of_runs(kind, series, by, title, columns)
    _write(figure, data, output or [Path(f"{kind}.html")], table)


def _write(figure: go.Figure, data: Table, outputs: Sequence[Path], table: Path | None) -> None:
    from autokernel import plots

    for path in outputs:
        say(f"wrote {plots.save(figure, path)}")
    if table is not None:
        say(f"wrote {data.save(table)}")


def _series(runs: Sequence[str] | None, root: Path, labels: Sequence[str]) -> list[Series]:
    """The series of what the command line names; what a reader must know about them goes to stderr."""
    from autokernel import plots

    found: list[Series] = []
    for place in [_place(run, root) for run in runs] if runs else [_place(None, root)]:
        found += plots.load_series(place)
    for one in found:
        for note in one.notes:
            complain(note)
    return plots.label_uniquely(found, labels)


def _place(run: str | None, root: Path) -> Path:
    """A file, a campaign, or a run by its path or name."""
    if run is not None:
        for path in (Path(run), _CAMPAIGNS / run):
            if path.is_file() or (path / "campaign.toml").is_file():
                return path
    return find_run(run, root, acts=False)


def _of_runs(kind: str, series: Sequence[Series], by: str, title: str, columns: int | None) -> tuple[go.Figure, Table]:
    from autokernel import plots

    if kind == "speedup":
        return plots.speedup(series, title=title, columns=columns), plots.speedup_table(series)
    if kind == "ablation":
        return plots.ablation(series, by=by, title=title, columns=columns), plots.ablation_table(series, by)
    if len(series) > 1:
        return plots.frontiers(series, title=title, columns=columns), plots.progress_table(series)
    points = plots.experiment_points(series[0].experiments)
    heading = title or ("" if columns else clean(_about(series[0])))
    return plots.progress(points, title=heading, columns=columns), plots.progress_table(series)


def _about(one: Series) -> str:
    facts = ", ".join(fact for fact in (one.label, one.backend, one.dtype) if fact)
    device = one.folder.target.device if one.folder is not None else ""
    return f"{facts} on {device}" if device else facts


def _roofline(
    series: Sequence[Series],
    profile: Path | None,
    bandwidth: float | None,
    peak: float | None,
    title: str,
    columns: int | None,
) -> tuple[go.Figure, Table]:
    from autokernel import plots

    points = plots.series_points(series)
    if not points:
        raise UsageError(
            "no kernel to place: a roofline needs runs of operations that state their FLOP and bytes, "
            "and were timed; a results.tsv alone does not hold them"
        )
    device = next((one.device for one in series if one.device), "")
    if bandwidth is None or peak is None:
        found = _peaks_of(profile, series) if profile else _peaks_here(device, series)
        bandwidth, peak = bandwidth or found[0], peak or found[1]
    peaks = {"gb_per_s": bandwidth, "peak_tflop_per_s": peak}
    figure = plots.roofline(points, **peaks, device=device, title=title, columns=columns)
    return figure, plots.roofline_table(points, **peaks)


def _peaks_of(profile: Path, series: Sequence[Series]) -> tuple[float, float]:
    """Measured bandwidth and rate from a saved profile."""
    from autokernel.hardware.measure import MeasuredPeaks
    from autokernel.profiling import ProfileReport

    measured = (ProfileReport.load(profile).roofline or {}).get("measured")
    if measured is None:
        raise UsageError(f"{profile} holds no measured peaks; pass --bandwidth and --peak")
    return _figures(MeasuredPeaks.from_dict(measured), series)


def _peaks_here(device: str, series: Sequence[Series]) -> tuple[float, float]:
    """Measured bandwidth and rate of this machine's device, if the runs were made on it.

    Raises:
        UsageError: They were made on another one.
    """
    from autokernel import hardware

    folder = next((one.folder for one in series if one.folder is not None), None)
    here = hardware.detect(folder.target.device if folder else "auto")
    if str(here) != device:
        raise UsageError(
            f"the runs were made on {device or 'a device that is not recorded'}, and this is {here}; pass --bandwidth "
            "and --peak, or --profile with a profile that was saved there"
        )
    return _figures(hardware.measure(here), series)


def _figures(measured: MeasuredPeaks, series: Sequence[Series]) -> tuple[float, float]:
    dtype = next((one.dtype for one in series if one.dtype), "float32")
    rates = measured.tflop_per_s
    names = ("float32", "tf32") if dtype == "float32" else (dtype,)
    rate = max((rates[name] for name in names if name in rates), default=None)
    if rate is None:
        raise UsageError(f"no rate was measured for {dtype}; pass --peak")
    return measured.bandwidth_gb_per_s, rate


def _amdahl(
    places: Sequence[str], profile: Path | None, given: Sequence[str], title: str, columns: int | None
) -> tuple[go.Figure, Table]:
    from autokernel import plots

    campaigns: list[Part] = []
    for place in places:
        folder = _place(place, ROOT)
        campaigns += plots.campaign_parts(folder)
    speedups = dict(map(_speedup, given))
    if profile is None:
        if not campaigns or speedups:
            raise UsageError("amdahl needs a campaign, or --profile with a saved profile (and --speedup TARGET=2.0)")
        return plots.amdahl_change(campaigns, title=title, columns=columns), plots.amdahl_table(campaigns)
    report = _report(profile)
    if not campaigns and not speedups:
        return plots.amdahl(report, title=title, columns=columns), plots.profile_table(report)
    parts = plots.profile_parts(report, {**{part.name: part for part in campaigns if part.speedup}, **speedups})
    heading = title or ("" if columns else f"{clean(report.model)} on {clean(report.device.get('name', ''))}")
    return plots.amdahl_change(parts, title=heading, columns=columns), plots.amdahl_table(parts)


def _report(profile: Path) -> ProfileReport:
    from autokernel.profiling import ProfileReport

    return ProfileReport.load(profile)


def _speedup(item: str) -> tuple[str, Ratio]:
    from autokernel.measurement import Ratio

    name, _, value = item.rpartition("=")
    try:
        ratio = float(value.rstrip("x"))
    except ValueError:
        ratio = 0.0
    if not name or not 0 < ratio < float("inf"):
        raise UsageError(f"cannot read --speedup {item!r}; write it as TARGET=2.0")
    return name, Ratio(ratio, ratio, ratio)
