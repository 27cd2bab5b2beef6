"""What figures are drawn from: the experiments of one run, wherever they are recorded.

A run's folder has everything: intervals, records, what the agent was asked for.  A results.tsv alone has
the figures of its columns.  One of ten columns, as the AutoKernel script that came before writes it,
does not say what was kept; that follows from its own rule: right, and at least 1 % more throughput than
the best before.  A result of ``autokernel bench --json`` is one kernel, measured.

Imports neither torch nor plotly.  Units: microseconds, TFLOP/s; a speedup above 1 means faster.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel.campaign_plan import FILE as CAMPAIGN
from autokernel.campaign_plan import CampaignPlan
from autokernel.errors import UsageError
from autokernel.experiment import Experiment, State, best_of
from autokernel.measurement import Measurement, Ratio
from autokernel.results import ResultsTable, Row, read
from autokernel.runfolder import RunFolder
from autokernel.target import FILE as TARGET

__all__ = ["Series", "label_uniquely", "load_series", "run_series"]

_LEAST_GAIN = 1.01  # of the script that came before, on throughput


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """The experiments of one operation.

    Attributes:
        label: What a legend calls it.
        name: The run's name, or the file's.
        operation: The operation.
        backend: ``triton``, ``cuda``, ``cpp``, or "" if it is not recorded.
        dtype: Of the timing cases, or "".
        device: As the verifier named it, or "".
        experiments: In order.  A ratio whose interval is not known has equal ends.
        folder: The run, where there is one.
        measured: Of the best kernel, where it was measured outside of a run.
        tags: The column ``tag`` by experiment, in a file that names experiments by it.
        notes: What a reader must know: lines left out, decisions that were derived.
    """

    label: str
    name: str = ""
    operation: str = ""
    backend: str = ""
    dtype: str = ""
    device: str = ""
    experiments: tuple[Experiment, ...] = ()
    folder: RunFolder | None = None
    measured: Measurement | None = None
    tags: Mapping[int, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Experiment | None:
        """The last kept experiment, the baseline if none was, or None."""
        return best_of(self.experiments)

    @property
    def kept(self) -> list[Experiment]:
        """The baseline and the kept experiments, in order."""
        return [one for one in self.experiments if one.decision in ("baseline", "keep") and one.passed]

    def trace(self, number: int) -> Mapping[str, Any]:
        """What the agent recorded for an experiment; empty where nothing is."""
        found = None if self.folder is None else self.folder.record(number).get("trace")
        return found if isinstance(found, Mapping) else {}

    def measurement(self, number: int) -> Measurement | None:
        """The measurement that counts for an experiment: the confirming one, if there is one."""
        if self.measured is not None:
            return self.measured
        if self.folder is None:
            return None
        _, first, confirmed = self.folder.judgement(number)
        return confirmed or first

    def ratio(self, experiment: Experiment, rival: str) -> Ratio | None:
        """The speedup over ``pytorch``, ``compile`` or ``incumbent``, or None.

        A confirmation does not time ``torch.compile``; then the first measurement says it.
        """
        found = experiment.speedups.get(rival)
        if found is None and rival == "compile" and self.folder is not None:
            _, first, _ = self.folder.judgement(experiment.number)
            found = None if first is None else first.speedups.get(rival)
        return found


def load_series(path: str | Path) -> list[Series]:
    """Read a run's folder, a campaign's folder (a series for each run), a results.tsv, or a measurement.

    Args:
        path: A folder; a file of rows, whatever its name; or a ``.json`` of ``autokernel bench --json``.
            A results.tsv that lies in a run's folder stands for the run.

    Raises:
        UsageError: It is none of these, or holds no experiment.
        RunDamaged: A run or a campaign cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        if (path / TARGET).is_file():
            return [run_series(RunFolder(path))]
        if (path / CAMPAIGN).is_file():
            return [run_series(RunFolder(path / "runs" / name)) for name in CampaignPlan.load(path).shares]
        raise UsageError(f"{path} is neither a run (it has no {TARGET}) nor a campaign (no {CAMPAIGN})")
    if not path.is_file():
        raise UsageError(f"{str(path)!r} does not exist; give a run, a campaign, or a results.tsv")
    if path.suffix == ".json":
        return [_measured(path)]
    if path.name == "results.tsv" and (path.parent / TARGET).is_file():
        return [run_series(RunFolder(path.parent))]
    return _from_table(path, read(path))


def run_series(folder: RunFolder) -> Series:
    """The series of a run; experiments that are not judged yet are left out."""
    target = folder.target
    judged = tuple(one for one in folder.experiments if one.correctness)
    verdict = folder.record(judged[0].number).get("verdict") if judged else None
    device = verdict.get("device") if isinstance(verdict, Mapping) else ""
    return Series(
        label=target.operation, name=folder.path.name, operation=target.operation, backend=target.backend,
        dtype=target.dtype, device=str(device or ""), experiments=judged, folder=folder,
    )  # fmt: skip


def label_uniquely(series: Sequence[Series], labels: Sequence[str] = ()) -> list[Series]:
    """Give each series the label that is asked for; those of one operation are told apart by their names.

    Raises:
        UsageError: There are labels, but not one for each series.
    """
    if labels and len(labels) != len(series):
        raise UsageError(f"there are {len(labels)} labels for {len(series)} runs; give one for each, in their order")
    if labels:
        return [dataclasses.replace(one, label=label) for one, label in zip(series, labels, strict=True)]
    shared = [one.label for one in series]
    named = [one.name if shared.count(one.label) > 1 and one.name else one.label for one in series]
    twice = [f"{name} ({named[: at + 1].count(name)})" if named.count(name) > 1 else name
             for at, name in enumerate(named)]  # fmt: skip
    return [dataclasses.replace(one, label=label) for one, label in zip(series, twice, strict=True)]


def _measured(path: Path) -> Series:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = data.get("confirmation") or data["measurement"]
        first = Measurement.from_dict(data["measurement"])
        measurement = Measurement.from_dict(found)
        device = str(data["verdict"]["device"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} is no measurement ({type(error).__name__}: {error}); write one with `bench --json`"
        ) from None
    best = Experiment(
        number=0, state=State.DECIDED, decision="baseline", correctness="PASS", latency_us=measurement.latency_us,
        speedups={**first.speedups, **measurement.speedups}, fraction_of_peak=measurement.cases[0].fraction_of_peak,
    )  # fmt: skip
    return Series(label=path.stem, name=path.stem, device=device, experiments=(best,), measured=measurement)


def _from_table(path: Path, table: ResultsTable) -> list[Series]:
    notes = tuple(f"{path}, line {one.line}: {one.reason}" for one in table.problems)
    if not table.rows:
        raise UsageError(f"{str(path)!r} holds no experiment" + "".join(f"; {note}" for note in notes[:3]))
    decided = "decision" in table.columns
    if not decided:
        rule = f"right, and at least {_LEAST_GAIN - 1:.0%} more throughput than the best before"
        notes += (f"{path} does not say what was kept; it follows from the rule of the script that wrote it: {rule}",)
    found = []
    for rows in _split(table.rows, by_tag=decided):
        experiments = [_experiment(row) for row in rows]
        name = (rows[0].tag if decided else "") or path.parent.name or path.stem
        found.append(
            Series(
                label=rows[0].kernel_type or name, name=name, operation=rows[0].kernel_type, backend=rows[0].backend,
                dtype=rows[0].dtype, experiments=tuple(experiments if decided else _decide(experiments)),
                tags=_tags(rows), notes=notes,
            )
        )  # fmt: skip
        notes = ()
    return found


def _split(rows: Sequence[Row], *, by_tag: bool) -> list[list[Row]]:
    """Rows of one run each: of one tag and operation, or, where tags name experiments, of one operation.

    A number that comes again begins another run.
    """
    runs: list[list[Row]] = []
    open_runs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        key = (row.tag if by_tag else "", row.kernel_type)
        run = open_runs.get(key)
        if run is None or any(row.experiment == one.experiment for one in run):
            run = open_runs[key] = []
            runs.append(run)
        run.append(row)
    return runs


def _tags(rows: Sequence[Row]) -> dict[int, str]:
    """The column ``tag`` where it differs within a run, and so names experiments and not the run."""
    return {row.experiment: row.tag for row in rows} if len({row.tag for row in rows}) > 1 else {}


def _experiment(row: Row) -> Experiment:
    ratios = {
        "pytorch": _ratio(row.speedup_vs_pytorch),
        "compile": _ratio(row.speedup_vs_compile),
        "incumbent": _ratio(row.speedup_vs_best, row.ci_low, row.ci_high),
    }
    return Experiment(
        number=row.experiment, state=State.DECIDED, hypothesis=row.description, agent=row.agent, commit=row.commit,
        decision=row.decision, correctness=row.correctness, latency_us=row.latency_us or None,
        tflop_per_s=row.throughput_tflops or None, tokens=row.tokens, seconds=row.seconds or 0.0,
        fraction_of_peak=row.pct_peak / 100 if row.pct_peak else None, timestamp=row.timestamp,
        speedups={name: ratio for name, ratio in ratios.items() if ratio is not None},
    )  # fmt: skip


def _ratio(value: float | None, low: float | None = None, high: float | None = None) -> Ratio | None:
    if not value:  # 0 stands for no figure
        return None
    return Ratio(value, value if low is None else low, value if high is None else high)


def _decide(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Decisions by the rule of the script that came before."""
    best: float | None = None
    decided = []
    for at, one in enumerate(experiments):
        rate = one.tflop_per_s or (1 / one.latency_us if one.latency_us else 0.0)
        gain = rate / best if best and rate else None
        better = one.passed and rate > 0 and (best is None or rate >= best * _LEAST_GAIN)
        decision = ("baseline" if at == 0 else "keep") if better else "revert"
        over = {} if gain is None else {"incumbent": Ratio(gain, gain, gain)}
        decided.append(dataclasses.replace(one, decision=decision, speedups={**one.speedups, **over}))
        best = rate if better else best
    return decided
