"""A campaign as widgets read it: its plan, where each target stands, what is worked on, and what comes next."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autokernel import files
from autokernel.campaign_plan import FILE
from autokernel.errors import RunDamaged
from autokernel.experiment import RunStatus
from autokernel.runfolder import Paths
from autokernel.scheduler import Choice, SchedulerSettings, Standing, model_speedup
from autokernel.target import FILE as TARGET_FILE
from autokernel_widgets.following import RunSource, Unreadable, stat_of

if TYPE_CHECKING:
    from autokernel.campaign import Campaign

__all__ = ["CampaignSource", "CampaignState", "is_campaign"]

_DRIVER_SECONDS = 0.5
_Result = TypeVar("_Result")


def is_campaign(what: object) -> bool:
    """True for a campaign, the source of one, and the path of a folder that has a campaign.toml."""
    if isinstance(what, CampaignSource) or (hasattr(what, "standings") and hasattr(what, "plan")):
        return True
    return isinstance(what, (str, Path)) and (Path(what).expanduser() / FILE).is_file()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CampaignState:
    """How a campaign stands at one moment.

    Attributes:
        model: What the shares were measured on, for people.
        standings: How each target stands.
        settings: How the campaign moves between its targets.
        next: The target that comes next, and why.
        driver: Who drives it, or None.
        runs: Where the run of each target stands, by the target's name.
        paused: A person asked for a pause that was not taken back.
        turn: The event of the turn in progress, or None.
        failed: Why targets could not be judged since the campaign was last started.
        events: All events, in order.
    """

    model: str
    standings: tuple[Standing, ...]
    settings: SchedulerSettings
    next: Choice
    driver: Mapping[str, Any] | None
    runs: Mapping[str, RunStatus]
    paused: bool
    turn: Mapping[str, Any] | None
    failed: Mapping[str, str]
    events: tuple[Mapping[str, Any], ...]

    @property
    def speedup(self) -> float:
        """The speedup of the model that the kept kernels predict (Amdahl)."""
        return model_speedup(self.standings)

    @property
    def attention(self) -> str:
        """The name of the target that is worked on, else of the next one, else of the first."""
        return str(self.turn["target"]) if self.turn else self.next.name or self.standings[0].name


class CampaignSource(RunSource):
    """A campaign folder as widgets read it.

    Args:
        campaign: A `Campaign`, which is then driven in this notebook with its own judges and agents, or the
            path of its folder.  Nothing is read yet.
    """

    def __init__(self, campaign: Campaign | str | Path) -> None:
        super().__init__(campaign)  # type: ignore[arg-type]
        self.given: Any = campaign if hasattr(campaign, "standings") else None
        self._campaign: Campaign | None = None
        self._plans: object = None

    @classmethod
    def of(cls, run: Any) -> CampaignSource:
        """The source of a campaign; widgets that show one campaign together share one."""
        return run if isinstance(run, CampaignSource) else cls(run)

    def campaign(self) -> Campaign:
        """The campaign, to read from.

        Raises:
            Unreadable: The folder is no campaign, or is damaged.
        """
        return self.guard(self._fresh)

    def state(self) -> CampaignState:
        """How it stands now.

        Raises:
            Unreadable: The folder is no campaign, or is damaged.
        """
        return self.guard(lambda: _state(self._fresh()))

    def _fresh(self) -> Campaign:
        """Opened again when campaign.toml or a target.toml has changed."""
        from autokernel.campaign import Campaign

        plans = (stat_of(self.path / FILE), *(stat_of(run / TARGET_FILE) for run in self._runs()))
        if self._campaign is None or plans != self._plans:
            campaign = Campaign(self.path)
            if not campaign.runs:
                raise RunDamaged(f"{self.path / FILE} has no target; a campaign has at least one [[target]]")
            self._campaign = campaign
            self._plans = (stat_of(self.path / FILE), *(stat_of(run / TARGET_FILE) for run in self._runs()))
        return self._campaign

    def guard(self, make: Callable[[], _Result]) -> _Result:
        """As that of a run; a campaign that could not be read is opened anew the next time."""
        try:
            return super().guard(make)
        except Unreadable:
            self._campaign = None
            raise

    def _runs(self) -> list[Path]:
        return [] if self._campaign is None else [run.path for run in self._campaign.runs.values()]

    def fingerprint(self) -> tuple[object, ...]:
        """Differs whenever something about the campaign may have changed; a few calls of `stat` for each run."""
        inner = Paths(self.path).inner
        watched = [self.path / FILE, inner / "events.jsonl", inner / "commands"]
        for run in self._runs():
            paths = Paths(run)
            watched += [run / TARGET_FILE, paths.journal, paths.commands]
        now = time.monotonic()
        if now - self._driver[0] >= _DRIVER_SECONDS:
            self._driver = now, (files.driver_of(inner / "lock") or {}).get("pid")
        return (*map(stat_of, watched), self._driver[1])


def _state(campaign: Campaign) -> CampaignState:
    events, driver = campaign.events(), campaign.driver
    turn: Mapping[str, Any] | None = None
    failed: dict[str, str] = {}
    for event in events:
        kind = event.get("kind")
        if kind == "turn":
            turn = event
            failed.pop(str(event.get("target")), None)
        elif kind in ("turned", "failed", "stopped"):
            turn = None
        if kind == "failed":
            failed[str(event.get("target"))] = str(event.get("error"))
    return CampaignState(
        model=campaign.plan.model,
        standings=tuple(campaign.standings),
        settings=campaign.plan.scheduler,
        next=campaign.next,
        driver=driver,
        runs={name: run.status for name, run in campaign.runs.items()},
        paused=any(_paused(run) for run in campaign.runs.values()),
        turn=turn if driver is not None else None,
        failed=failed,
        events=tuple(events),
    )


def _paused(run: Any) -> bool:
    """A run is paused, or will be when its next turn begins."""
    asked = [command.kind for command in run.waiting_commands if command.kind in ("pause", "resume")]
    return asked[-1] == "pause" if asked else run.status.state == "paused"
