"""A campaign: the runs of one model's operations, worked on in the order of what they still offer.

A campaign is a folder with campaign.toml (the targets with their shares of the model's time) and a
run folder for each target under ``runs/``.  What was achieved is read from the runs, so nothing is
kept twice; ``events.jsonl`` says which target was chosen when, and why.  The choice itself is made
by `scheduler`, an experiment by `session`.

Shares are fractions of the time that the model took before the campaign.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autokernel import agents, files, results
from autokernel.agents.protocol import Agent
from autokernel.campaign_plan import FILE, CampaignPlan, CampaignTarget, check_targets, speedup_in_model
from autokernel.creation import create
from autokernel.engine import Judge
from autokernel.errors import RunDamaged, RunnerLost, UsageError
from autokernel.events import Command, Commands, EventLog, EventReader
from autokernel.experiment import Summary, best_of, decided
from autokernel.policy import PolicySettings
from autokernel.runfolder import RunFolder
from autokernel.scheduler import Choice, SchedulerSettings, Standing, choose, model_speedup
from autokernel.session import Session

__all__ = ["Campaign", "CampaignSummary"]

_FINISHING = {"exhausted": "the agent has nothing more to try", "near_peak": "its best kernel is near the floor"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CampaignSummary:
    """What one call of `Campaign.run` did.

    Attributes:
        experiments: How many were made.
        turns: Names of the targets worked on, in order.
        model_speedup: Predicted for the whole model from all kernels kept so far.
        stopped: Why it ended, in a sentence.
        seconds: What the call took.
    """

    experiments: int
    turns: tuple[str, ...]
    model_speedup: float
    stopped: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class _Turn:
    """Some experiments on one target that are being made.

    Attributes:
        name: The target.
        task: What makes them.
        goal: How many experiments the target has when they are made.
    """

    name: str
    task: asyncio.Task[Summary]
    goal: int

    def left(self, standings: Sequence[Standing]) -> int:
        """How many are still to be made."""
        return self.goal - next(one.experiments for one in standings if one.name == self.name)


class Campaign:
    """One campaign folder: look at it, drive it, stop it.

    Any process may look; `run` holds the lock, so that only one drives.

    Args:
        path: The folder.
        judge_of: Makes the evaluator of a run, by the run's name; an `Evaluator` of its own when None.
        agent_of: Makes the agent of a run, by the run's name; the one that its target.toml names when None.
        at_once: Work on so many targets at the same time; sensible where judges have several devices.

    Raises:
        UsageError: The folder is no campaign.
        RunDamaged: campaign.toml, or a run, cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        judge_of: Callable[[str], Judge] | None = None,
        agent_of: Callable[[str], Agent] | None = None,
        at_once: int = 1,
    ) -> None:
        self.path = Path(path).resolve()
        self._at_once = at_once
        self._judge_of, self._agent_of = judge_of, agent_of
        self.plan = CampaignPlan.load(self.path)
        self._inner = self.path / ".autokernel"
        self._events = EventReader(self._inner / "events.jsonl")
        self._commands = Commands(self._inner / "commands")
        self._in_model: dict[tuple[str, int], float | None] = {}  # of a decided experiment, which does not change
        self.runs: dict[str, RunFolder] = {name: RunFolder(self.path / "runs" / name) for name in self.plan.shares}

    @classmethod
    def create(
        cls,
        targets: Sequence[CampaignTarget],
        *,
        model: str = "",
        root: str | Path = "campaigns",
        name: str | None = None,
        device: str = "auto",
        agent: str = "auto",
        approval: str = "auto",
        policy: PolicySettings | None = None,
        scheduler: SchedulerSettings | None = None,
        judge_of: Callable[[str], Judge] | None = None,
        agent_of: Callable[[str], Agent] | None = None,
    ) -> Campaign:
        """Make a campaign folder with a run for each target; nothing is judged yet.

        Args:
            targets: What to optimise.
            model: What the shares were measured on, for people.
            root: Where campaigns lie.
            name: The campaign's name; ``campaign-<number>`` when None.
            device: As for `Session.create`.
            agent: Who proposes, by name.
            approval: ``auto`` or ``approve``.
            policy: When a kernel is kept.
            scheduler: How the campaign moves between its targets.
            judge_of: As for `Campaign`.
            agent_of: As for `Campaign`.

        Raises:
            UsageError: Something does not fit; nothing is left behind.
            RunUnwritable: The folder cannot be made.
        """
        check_targets(targets)
        agents.check(agent)
        root = Path(root)
        folder = root / (name or _free_name(root))
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not empty; go on with it, or choose another name")
        making = folder.with_name(f".{folder.name}.making")
        if making.exists():
            raise UsageError(f"{making} is left of an attempt that was cut short; remove it and try again")
        try:
            made: list[tuple[str, CampaignTarget]] = []
            for target in targets:
                run = create(
                    target.operation, backend=target.backend, device=device, dtype=target.dtype,
                    shapes=target.timing or None, root=making / "runs", name=target.name, agent=agent,
                    approval=approval, policy=policy or PolicySettings(), start=target.start, compiled=False,
                )  # fmt: skip
                made.append((run.name, target))
            plan = CampaignPlan(
                model=model,
                shares={run: target.share for run, target in made},
                ceilings={run: target.ceiling for run, target in made},
                scheduler=scheduler or SchedulerSettings(),
            )
            files.write_atomic(making / FILE, plan.to_toml())
            with files.writable(folder):
                (making / ".autokernel" / "commands").mkdir(parents=True)
                making.rename(folder)
        except BaseException:
            files.remove_tree(making)
            raise
        return cls(folder, judge_of=judge_of, agent_of=agent_of)

    # What there is

    @property
    def standings(self) -> list[Standing]:
        """How each target stands, read from its run."""
        finished = self._finished()
        return [self._standing(name, finished.get(name, "")) for name in self.runs]

    @property
    def next(self) -> Choice:
        """The target that would be worked on next, and why."""
        return choose(self.standings, self.plan.scheduler, self._last_target())

    @property
    def model_speedup(self) -> float:
        """The speedup of the whole model that the kept kernels predict (Amdahl)."""
        return model_speedup(self.standings)

    @property
    def driver(self) -> dict[str, Any] | None:
        """Who drives the campaign: ``pid``, ``host``, ``since``; None if nobody does."""
        return files.driver_of(self._inner / "lock")

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """What was chosen, when and why: ``turn``, ``turned``, ``stopped`` events above number ``after``."""
        return self._events.after(after)

    def rows(self) -> list[results.Row]:
        """The rows of all runs as one table, in the order of time; ``tag`` says which run."""
        rows = [row for folder in self.runs.values() for row in results.load(folder.paths.results)]
        return sorted(rows, key=lambda row: row.timestamp)

    # The loop

    async def run(
        self, experiments: int | None = None, minutes: float | None = None, tokens: int | None = None
    ) -> CampaignSummary:
        """Work on the targets in turns, until a budget is used up or no target offers enough.

        Args:
            experiments: How many, over all targets; baselines do not count.
            minutes: Begin no experiment after so many.
            tokens: Begin no turn after so many language-model tokens.

        Raises:
            RunBusy: Another process drives the campaign, or a run of it.
            RunUnwritable: The disk is full, or the folder read-only.
        """
        lock = files.RunLock(self._inner / "lock")
        try:
            self._discard_stops()
            log = EventLog(self._inner / "events.jsonl")
            budget = _Budget(self.standings, experiments, minutes, tokens)
            turns, stopped = await self._loop(log, budget)
            log.write("stopped", reason=stopped)
        finally:
            lock.release()
        return CampaignSummary(
            experiments=budget.made(self.standings),
            turns=tuple(turns),
            model_speedup=self.model_speedup,
            stopped=stopped,
            seconds=budget.seconds,
        )

    def stop(self) -> None:
        """Let `run`, in whatever process, end after the experiment in progress."""
        self._commands.send(Command(kind="stop"))

    async def _loop(self, log: EventLog, budget: _Budget) -> tuple[list[str], str]:
        """Take turns, so many at once, until there is a reason to end; returns the targets and the reason."""
        turns: list[str] = []
        failed: dict[str, str] = {}
        working: dict[str, _Turn] = {}
        ending = asyncio.Event()
        asked = ""
        try:
            while True:
                standings = [
                    dataclasses.replace(one, finished=failed.get(one.name, one.finished)) for one in self.standings
                ]
                end = asked or budget.used_up(standings) or ("a person asked for a stop" if self._stop_asked() else "")
                idle = [one for one in standings if one.name not in working]
                choice = choose(idle, self.plan.scheduler, self._last_target())
                promised = sum(turn.left(standings) for turn in working.values())
                free = min(self._at_once, len(standings)) - len(working)
                count = budget.of_a_turn(self.plan.scheduler.turn, standings, promised, free)
                if not end and choice.name is not None and free > 0 and count > 0:
                    turns.append(choice.name)
                    log.write("turn", target=choice.name, reason=choice.reason, experiments=count)
                    task = asyncio.create_task(self._turn(choice.name, count, budget.minutes_left, ending))
                    made = next(one.experiments for one in standings if one.name == choice.name)
                    working[choice.name] = _Turn(choice.name, task, made + count)
                    continue
                if not working:
                    return turns, end or choice.reason
                await asyncio.wait([turn.task for turn in working.values()], return_when=asyncio.FIRST_COMPLETED)
                for turn in [one for one in working.values() if one.task.done()]:
                    del working[turn.name]
                    asked = self._note_turn(log, turn, failed) or asked
                if asked:
                    ending.set()
        finally:
            for turn in working.values():
                turn.task.cancel()
            await asyncio.gather(*(turn.task for turn in working.values()), return_exceptions=True)

    def _note_turn(self, log: EventLog, turn: _Turn, failed: dict[str, str]) -> str:
        """Write down how a turn ended; returns why a person ended it, or ""."""
        try:
            summary = turn.task.result()
        except (RunDamaged, RunnerLost, UsageError) as error:
            failed[turn.name] = f"{type(error).__name__}: {error}"
            log.write("failed", target=turn.name, error=failed[turn.name])
            return ""
        total = summary.tally.total
        log.write("turned", target=turn.name, cause=summary.cause, reason=summary.stopped, experiments=total)
        return summary.stopped if summary.cause == "asked" else ""

    async def _turn(self, name: str, experiments: int, minutes: float | None, ending: asyncio.Event) -> Summary:
        judge = self._judge_of(name) if self._judge_of else None
        agent = self._agent_of(name) if self._agent_of else None
        async with Session.open(self.runs[name].path, evaluator=judge, agent=agent) as session:
            watch = asyncio.create_task(self._pass_on_stop(session, ending))
            try:
                return await session.run(experiments=experiments, minutes=minutes)
            finally:
                watch.cancel()

    async def _pass_on_stop(self, session: Session, ending: asyncio.Event) -> None:
        while not self._stop_asked() and not ending.is_set():
            await asyncio.sleep(0.2)
        session.stop()

    def _stop_asked(self) -> bool:
        return any(command.kind == "stop" for command in self._commands.waiting()[0])

    def _discard_stops(self) -> None:
        """A stop that was meant for a process which has ended does not stop this one."""
        for command in self._commands.waiting()[0]:
            self._commands.discard(command)

    # Reading

    def _last_target(self) -> str | None:
        return next((event["target"] for event in reversed(self.events()) if event.get("kind") == "turn"), None)

    def _finished(self) -> dict[str, str]:
        """Targets whose last turn ended because nothing is left to try; with the reason."""
        last = {event["target"]: event["cause"] for event in self.events() if event.get("kind") == "turned"}
        return {name: _FINISHING[cause] for name, cause in last.items() if cause in _FINISHING}

    def _standing(self, name: str, finished: str) -> Standing:
        experiments = self.runs[name].experiments
        done = decided(experiments)
        best = best_of(experiments)
        right = best is not None and best.passed
        in_model = self._speedup_in_model(name, best.number) if best is not None and right else None
        over_pytorch = best.speedup.value if best is not None and right and best.speedup else None
        speedup = in_model or over_pytorch
        fraction = best.fraction_of_peak if best is not None and right else None
        return Standing(
            name=name,
            share=self.plan.shares[name],
            speedup=speedup or 1.0,
            measured=speedup is not None,
            over="the model" if all(one.model_us for one in self.runs[name].target.timing) else "PyTorch",
            ceiling=speedup / fraction if speedup and fraction else self.plan.ceilings.get(name),
            experiments=len(done),
            idle=sum(best is None or one.number > best.number for one in done),
            seconds=sum(one.seconds + one.think_seconds for one in experiments),
            tokens=sum(one.tokens or 0 for one in done),
            finished=finished,
        )

    def _speedup_in_model(self, name: str, number: int) -> float | None:
        if (name, number) not in self._in_model:
            self._in_model[name, number] = speedup_in_model(self.runs[name], number)
        return self._in_model[name, number]


class _Budget:
    """What one call of `Campaign.run` may still use."""

    def __init__(
        self, start: Sequence[Standing], experiments: int | None, minutes: float | None, tokens: int | None
    ) -> None:
        self._begin = time.monotonic()
        self._made = sum(one.experiments for one in start)
        self._spent = sum(one.tokens for one in start)
        self._experiments, self._minutes, self._tokens = experiments, minutes, tokens

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    @property
    def minutes_left(self) -> float | None:
        return None if self._minutes is None else self._minutes - self.seconds / 60

    def made(self, standings: Sequence[Standing]) -> int:
        return sum(one.experiments for one in standings) - self._made

    def of_a_turn(self, turn: int, standings: Sequence[Standing], promised: int, free: int) -> int:
        """How many experiments the next turn gets, where ``free`` turns share what is not promised yet."""
        if self._experiments is None:
            return turn
        left = self._experiments - self.made(standings) - promised
        return min(turn, -(-left // max(1, free)))

    def used_up(self, standings: Sequence[Standing]) -> str:
        """Which budget is used up, in a sentence, or ""."""
        if self._experiments is not None and self.made(standings) >= self._experiments:
            return f"{self._experiments} experiments were made"
        if self.minutes_left is not None and self.minutes_left <= 0:
            return f"{self._minutes:g} minutes are over"
        spent = sum(one.tokens for one in standings) - self._spent
        if self._tokens is not None and spent >= self._tokens:
            return f"{spent} tokens were used, of {self._tokens}"
        return ""


def _free_name(root: Path) -> str:
    return next(name for number in itertools.count(1) if not (root / (name := f"campaign-{number}")).exists())
