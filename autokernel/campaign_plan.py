"""campaign.toml: which operations of a model a campaign works on, and what each is worth.

Shares are fractions of the time that the model took before the campaign; a ceiling is a speedup.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from autokernel.errors import AutokernelError, RunDamaged, UsageError
from autokernel.runfolder import RunFolder
from autokernel.scheduler import SchedulerSettings
from autokernel.target import Timing, toml_value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FILE", "CampaignPlan", "CampaignTarget", "check_targets", "speedup_in_model"]

FILE = "campaign.toml"
_HEADER = "# A campaign over the operations of one model.  [scheduler] may be edited while nobody drives it."


@dataclasses.dataclass(frozen=True, kw_only=True)
class CampaignTarget:
    """One operation of the model, as it is to be optimised.

    Attributes:
        operation: As `Session.create` takes it.
        share: Its part of the model's time, above 0, at most 1.
        timing: The sizes that the model uses, weighted by their time; the operation's own when empty.
        dtype: The dtype that the model uses; the operation's usual one when None.
        backend: ``triton``, ``cuda``, ``cpp`` or ``auto``.
        ceiling: The speedup at the roofline floor, or None if it is not known.
        name: Of its run; ``<operation>-<number>`` when None.
        start: The kernel to start from: a path, or its text; the starter when None.
    """

    operation: str
    share: float
    timing: Sequence[Timing] = ()
    dtype: str | None = None
    backend: str = "auto"
    ceiling: float | None = None
    name: str | None = None
    start: str | Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"the share of {self.operation} is {self.share!r}; give a fraction above 0, at most 1")
        if self.ceiling is not None and not self.ceiling > 0:
            raise UsageError(f"the ceiling of {self.operation} is {self.ceiling!r}; give a speedup above 0, or None")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    """The content of campaign.toml.

    Attributes:
        model: What the shares were measured on, for people.
        shares: By the name of the target's run.
        ceilings: The speedup at the roofline floor, or None where it is not known.
        scheduler: How the campaign moves between its targets.
    """

    model: str
    shares: Mapping[str, float]
    ceilings: Mapping[str, float | None]
    scheduler: SchedulerSettings = dataclasses.field(default_factory=SchedulerSettings)

    def to_toml(self) -> str:
        """The text of campaign.toml."""
        lines = [_HEADER, f"model = {toml_value(self.model)}"]
        for name, share in self.shares.items():
            lines += ["", "[[target]]", f"run = {toml_value(name)}"]
            lines += [f"share = {toml_value(float(share))}  # of the model's time before the campaign"]
            ceiling = self.ceilings.get(name)
            lines += [] if ceiling is None else [f"ceiling = {toml_value(float(ceiling))}  # speedup at the floor"]
        lines += ["", "[scheduler]"]
        lines += [f"{name} = {toml_value(value)}" for name, value in dataclasses.asdict(self.scheduler).items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def load(cls, folder: Path) -> CampaignPlan:
        """Read the campaign.toml of a folder.

        Raises:
            UsageError: The folder is no campaign.
            RunDamaged: The file cannot be read.
        """
        path = folder / FILE
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
            targets = data["target"]
            return cls(
                model=str(data.get("model", "")),
                shares={str(one["run"]): float(one["share"]) for one in targets},
                ceilings={str(one["run"]): one.get("ceiling") for one in targets},
                scheduler=SchedulerSettings(**data.get("scheduler", {})),
            )
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{folder} is no campaign: it has no {FILE}; create one with `autokernel campaign new`"
            ) from None
        except (AutokernelError, KeyError, TypeError, ValueError) as error:  # TOML and UTF-8 errors are ValueErrors
            raise RunDamaged(f"{path} cannot be read ({type(error).__name__}: {error}); correct it") from None


def speedup_in_model(run: RunFolder, number: int) -> float | None:
    """The speedup of an experiment's kernel over what the model itself runs, by the times of single calls.

    The model's code may be slower than PyTorch's operator, or faster, so the speedup that a run measures is another
    one.  Sizes count by their time in the model: ``sum(w) / sum(w * kernel_us / model_us)``.  The kernel's time is that
    of the confirming measurement, where there is one.

    Returns:
        None if the run's target does not say what a call takes in the model, or the kernel was not timed.

    Raises:
        RunDamaged: The record of the experiment cannot be read.
    """
    timing = run.target.timing
    if any(one.model_us is None for one in timing):
        return None
    _verdict, measured, confirmed = run.judgement(number)
    measurement = confirmed or measured
    if measurement is None or len(measurement.cases) != len(timing):
        return None
    after = 0.0
    for one, case in zip(timing, measurement.cases, strict=True):
        after += one.weight * case.contestants["candidate"].latency_us / (one.model_us or 1.0)
    return sum(one.weight for one in timing) / after


def check_targets(targets: Sequence[CampaignTarget]) -> None:
    if not targets:
        raise UsageError("a campaign needs at least one target")
    total = sum(target.share for target in targets)
    if total > 1 + 1e-6:
        raise UsageError(
            f"the targets' shares add up to {total:.3f} of the model's time; they are fractions of one whole"
        )
    names = [target.name for target in targets if target.name is not None]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"two targets are called {', '.join(sorted(twice))}; give each run a name of its own")
