"""Experiments and the state of a run as text for a person."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autokernel.cli.console import console, say, text
from autokernel.cli.rendering import ratio_text
from autokernel.experiment import Experiment, RunStatus, State, Summary
from autokernel.plaintext import one_line

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["experiment_line", "show_log", "show_status", "show_summary", "status_data", "summary_data"]

_STYLES = {"keep": "green", "baseline": "bold", "rejected": "red", "waiting": "yellow"}


def outcome(experiment: Experiment) -> str:
    """What became of an experiment: baseline, keep, revert, rejected, waiting or proposed."""
    if experiment.state is not State.DECIDED:
        return experiment.state.value
    if experiment.decision == "revert" and not experiment.passed:
        return "rejected"
    return experiment.decision


def experiment_line(experiment: Experiment) -> str:
    """One experiment in one line, for output that grows."""
    words = [f"{experiment.number:>4}  {outcome(experiment):<9}"]
    if experiment.speedup:
        words.append(f"{experiment.speedup.value:.3f}x PyTorch")
    over_best = experiment.speedups.get("incumbent")
    if over_best:
        words.append(f"{ratio_text(over_best)} over the best")
    if not experiment.passed and experiment.reason:
        words.append(one_line(experiment.reason, limit=120))
    words.append(one_line(experiment.hypothesis, limit=80))
    return "  ".join(words)


def show_log(experiments: Iterable[Experiment]) -> None:
    """Print one row per experiment."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for name in ("latency µs", "over PyTorch", "over the best, 95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("commit", no_wrap=True)
    table.add_column("hypothesis", overflow="fold")
    for experiment in experiments:
        result = outcome(experiment)
        latency = "" if experiment.latency_us is None else f"{experiment.latency_us:.1f}"
        over_pytorch = "" if experiment.speedup is None else f"{experiment.speedup.value:.3f}x"
        over_best = experiment.speedups.get("incumbent")
        table.add_row(
            text(experiment.number), text(result, _STYLES.get(result, "")), text(latency), text(over_pytorch),
            text(ratio_text(over_best) if over_best else ""), text(experiment.commit[:8]),
            text(one_line(experiment.hypothesis)),
        )  # fmt: skip
    console().print(table)


def show_status(status: RunStatus) -> None:
    """Print where a run stands."""
    tally = status.tally
    rows = [
        ("run", status.path),
        ("operation", f"{status.operation}, {status.backend}, {status.dtype} on {status.device}"),
        ("state", _state(status)),
        ("agent", f"{status.agent}, approval {status.approval}"),
        ("experiments", f"{tally.total}: {tally.kept} kept, {tally.reverted} reverted, {tally.rejected} rejected"),
        ("best", _best(status.best)),
    ]
    if status.current is not None:
        rows.append(("current", experiment_line(status.current).strip()))
    if status.seconds_per_experiment is not None:
        rows.append(("pace", f"{status.seconds_per_experiment:.1f} s per experiment"))
    rows += [("note", note) for note in status.notes]
    console().print(_pairs(rows))


def _state(status: RunStatus) -> str:
    if not status.driver:
        return status.state
    return f"{status.state}, driven by process {status.driver.get('pid')} since {status.driver.get('since')}"


def _best(best: Experiment | None) -> str:
    if best is None:
        return "none yet: the baseline is not judged"
    return f"experiment {best.number}, {ratio_text(best.speedup)} over PyTorch"


def _pairs(rows: Iterable[tuple[str, object]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(text(name), text(value))
    return table


def status_data(status: RunStatus) -> dict[str, Any]:
    """The status as JSON-ready data."""
    names = ("operation", "backend", "dtype", "device", "branch", "agent", "approval", "state")
    return {
        "run": str(status.path),
        **{name: getattr(status, name) for name in names},
        "driver": status.driver,
        "tally": vars(status.tally),
        "best": status.best.to_dict() if status.best else None,
        "current": status.current.to_dict() if status.current else None,
        "seconds_per_experiment": status.seconds_per_experiment,
        "notes": list(status.notes),
    }


def show_summary(summary: Summary, figure: Path | None = None, note: str = "") -> None:
    """Print the short table at the end of ``run`` and ``demo``; ``note`` says how far to trust it."""
    tally = summary.tally
    pace = f", {summary.seconds_per_experiment:.1f} s each" if summary.seconds_per_experiment else ""
    say()
    rows = [
        ("best speedup over PyTorch", ratio_text(summary.speedup)),
        ("experiments", f"{tally.total}{pace}"),
        ("kept / reverted / rejected", f"{tally.kept} / {tally.reverted} / {tally.rejected}"),
        ("stopped", summary.stopped),
        ("results", summary.results),
        *([("figure", figure)] if figure is not None else []),
        *([("note", note)] if note else []),
    ]
    console().print(_pairs(rows))


def summary_data(summary: Summary) -> dict[str, Any]:
    """The summary as JSON-ready data."""
    return {
        "tally": vars(summary.tally),
        "best": summary.best.to_dict() if summary.best else None,
        "stopped": summary.stopped,
        "seconds": summary.seconds,
        "seconds_per_experiment": summary.seconds_per_experiment,
        "results": str(summary.results),
    }
