"""The loop over one operation in one run folder: propose, commit, judge, decide, write down.

A `Session` drives a run; there is one per run at a time.  It is asyncio throughout: while a
candidate is judged (in a thread) or a person is waited for, the notebook stays responsive, and
commands of other processes are carried out.  Everything that it knows is in the folder, so a
session that was killed is continued by opening the run again.

Watching is `RunFolder`'s business; what a decision follows from, the policy's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autokernel import agents, creation, detached
from autokernel.agents.protocol import Agent, Exhausted
from autokernel.desk import Desk
from autokernel.engine import POLL_SECONDS, Engine, Judge
from autokernel.errors import UsageError
from autokernel.events import Command
from autokernel.experiment import Experiment, RunStatus, State, Summary, decided, tally
from autokernel.policy import Move, PolicySettings, next_move
from autokernel.recorder import Checkpoint, Recorder
from autokernel.runfolder import RunFolder
from autokernel.target import Target, Timing

__all__ = ["Session"]


class Session:
    """The one driver of a run; made by `create` or `open`, closed by `close` or ``with``.

    Args:
        path: The run folder.
        agent: Who proposes: a name as in `autokernel.agents.make`, an `Agent`, or None for the one
            that target.toml names.
        approval: ``auto`` or ``approve``; None for what target.toml says.
        evaluator: Who judges; an `Evaluator` of its own when None.  A `DaskEvaluator` judges several
            candidates at once, on as many workers.
        take_edit: What a person wrote into kernel.py becomes the next candidate, instead of being
            committed aside.
        checkpoint: For tests: called with the name of each step that a kill might come after.

    Raises:
        RunBusy: Another process drives the run.
        RunDamaged: The folder cannot be continued; the message says what to do.
        RunUnwritable: It cannot be written.
        UsageError: The folder is no run, or a value is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        agent: str | Agent | None = None,
        approval: str | None = None,
        evaluator: Judge | None = None,
        take_edit: bool = False,
        checkpoint: Checkpoint = lambda name: None,
    ) -> None:
        self.folder = RunFolder(path)
        self.target: Target = self.folder.target
        if approval is not None:
            self.target = dataclasses.replace(self.target, approval=approval)
        self._turn = asyncio.Lock()
        self._closed = False
        self._recorder = Recorder(self.folder.path, checkpoint=checkpoint)
        self._desk = Desk(self._recorder)
        self._engine = Engine(self._recorder, self._desk, self.target, agent or self.target.agent, evaluator)
        try:
            self._open(take_edit)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: str | Path, **options: Any) -> Session:
        """Take up a run where it stopped; the options are those of `Session`."""
        return cls(path, **options)

    @classmethod
    def create(
        cls,
        operation: str,
        *,
        backend: str = "auto",
        device: str = "auto",
        dtype: str | None = None,
        shapes: Sequence[Mapping[str, int] | Timing] | None = None,
        root: str | Path = "runs",
        name: str | None = None,
        agent: str | Agent = "auto",
        approval: str = "auto",
        policy: PolicySettings | None = None,
        start: str | Path | None = None,
        compiled: bool = False,
        evaluator: Judge | None = None,
        checkpoint: Checkpoint = lambda name: None,
    ) -> Session:
        """Make a run and open it; nothing is judged yet.

        Args:
            operation: A shipped operation, or ``my_op.py`` or ``my_op.py:name``.
            backend: ``triton``, ``cuda``, ``cpp``, or ``auto``: C++ on a CPU, Triton on a GPU.
            device: ``cpu``, ``cuda``, ``cuda:<index>``, or ``auto``: a GPU if there is one.
            dtype: Of the timing cases; float32 on a CPU, else the operation's first, when None.
            shapes: Sizes to time on, as mappings, or as `Timing` with options and a weight; the
                operation's own when None.
            root: Where runs lie.
            name: The run's name; ``<operation>-<number>`` when None.
            agent: As for `Session`; ``auto`` is the offline search.
            approval: ``auto`` (the policy decides) or ``approve`` (a person does).
            policy: When to keep and when to stop.
            start: The kernel to start from: a path, its text, or ``tuned``; the starter when None.
            compiled: Time ``torch.compile`` beside the others.
            evaluator: As for `Session`.
            checkpoint: As for `Session`.

        Raises:
            UsageError: Something does not fit; the message says what, and what would.
            RunUnwritable: The folder cannot be made.
            DeviceUnavailable: There is no such device.
        """
        if isinstance(agent, str):
            agents.make(agent)
        path = creation.create(
            operation, backend=backend, device=device, dtype=dtype, shapes=shapes, root=Path(root), name=name,
            agent=agent if isinstance(agent, str) else agent.name, approval=approval,
            policy=policy or PolicySettings(), start=start, compiled=compiled,
        )  # fmt: skip
        return cls(path, agent=agent, evaluator=evaluator, checkpoint=checkpoint)

    @staticmethod
    def spawn_detached(
        path: str | Path,
        *,
        experiments: int = 20,
        minutes: float | None = None,
        approval: str | None = None,
        workers: str | None = None,
    ) -> int:
        """Drive a run in a process of its own that outlives this one; returns its process id.

        Its output goes to ``.autokernel/driver.log``.

        Raises:
            RunBusy: A process drives the run already; this session counts, so close it first.
        """
        folder = RunFolder(path)
        return detached.spawn(folder, experiments=experiments, minutes=minutes, approval=approval, workers=workers)

    # What there is

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def experiments(self) -> list[Experiment]:
        """All experiments in order."""
        return list(self._recorder.state.experiments.values())

    @property
    def best(self) -> Experiment | None:
        """The experiment whose kernel is on the branch, or None before the baseline is judged."""
        return self._recorder.state.best

    @property
    def waiting(self) -> Experiment | None:
        """The experiment that waits for a person's decision, or None."""
        return next((one for one in self._recorder.state.unfinished if one.state is State.WAITING), None)

    @property
    def status(self) -> RunStatus:
        """Where the run stands."""
        return dataclasses.replace(self.folder.status, approval=self.target.approval)

    # The loop

    async def step(self) -> Experiment:
        """Make one experiment: propose, commit, judge, decide, write down.

        The first step of a run judges the baseline.  With ``approval="approve"`` the experiment
        comes back waiting when it passes verification.  A step is made even when the run is paused.

        Raises:
            Exhausted: The agent has nothing more to try.
            UsageError: The agent lacks something, such as a key; an experiment waits for a decision; or the run was
                stopped meanwhile.
            AutokernelError: The judging itself failed; the experiment is judged again by the next step.
        """
        async with self._turn:
            self._desk.work()
            if self.waiting is not None:
                raise UsageError(_wait_for(self.waiting))
            self._check_agent()
            experiment = await self._engine.advance(0 if self._recorder.state.unfinished else 1)
        if experiment is None:
            raise UsageError("the run was stopped before the agent proposed anything")
        return experiment

    async def run(self, experiments: int | None = None, minutes: float | None = None) -> Summary:
        """Make experiments until there are enough, the policy or a person says stop, or the agent is done.

        A paused run waits until it is resumed; so does one with an experiment that waits for a
        decision.  A stop lets what is being judged finish.

        Args:
            experiments: How many; the baseline does not count.  Those that an earlier call left undecided are
                decided in any case, and count.
            minutes: Begin no experiment after so many.

        Raises:
            UsageError: The agent lacks something, such as a key; nothing was measured.
            AutokernelError: The judging itself failed.
        """
        begin = time.monotonic()
        made: dict[int, Experiment] = {}
        self._desk.stop_asked = ""
        self._check_agent()
        self._recorder.events.write("run", experiments=experiments, minutes=minutes)
        async with self._turn:
            end = await self._loop(made, begin, experiments, minutes)
        self._recorder.events.write("stopped", reason=end.reason, cause=end.cause)
        done = [self._recorder.state.experiments[number] for number in made]
        seconds = time.monotonic() - begin
        return Summary(
            tally=tally(done),
            best=self.best,
            stopped=end.reason,
            cause=end.cause,
            seconds=seconds,
            seconds_per_experiment=seconds / len(done) if done else None,
            results=self.folder.paths.results,
        )

    async def submit(self, source: str, hypothesis: str, *, agent: str = "external") -> Experiment:
        """Judge a kernel that somebody else wrote, and keep or revert it.

        Args:
            source: The text of a kernel.py.
            hypothesis: What the change should bring.
            agent: Who wrote it; stands in results.tsv.

        Raises:
            UsageError: The text is empty or was judged before, or an experiment waits for a decision.
            AutokernelError: The judging itself failed; the next step judges it again.
        """
        if not source.strip():
            raise UsageError("the submitted kernel is empty; hand in the whole text of a kernel.py")
        async with self._turn:
            self._desk.work()
            while self._recorder.state.unfinished:
                if self.waiting is not None:
                    raise UsageError(_wait_for(self.waiting))
                await self._engine.advance(0)
            before = self._recorder.judged_before(source)
            if before is not None:
                raise UsageError(
                    f"this text was judged already, as experiment {before.number} ({before.decision}); the same kernel "
                    "timed again would only measure noise, so change it first"
                )
            self._recorder.propose(source, hypothesis, agent)
            experiment = await self._engine.advance(0)
        assert experiment is not None  # the one that was just proposed
        return experiment

    async def _loop(
        self, made: dict[int, Experiment], begin: float, experiments: int | None, minutes: float | None
    ) -> Move:
        """Make experiments into ``made``; returns why it ended."""
        while True:
            self._desk.work()
            resting = self._recorder.state.paused or self.waiting is not None
            if not self._engine.judging:
                if self._desk.stop_asked:
                    return Move("stop", self._desk.stop_asked, "asked")
                if resting:
                    await asyncio.sleep(POLL_SECONDS)
                    continue
            move = self._move(len(made), (time.monotonic() - begin) / 60, experiments, minutes)
            if move.kind == "stop" and not self._recorder.state.unfinished:
                return move
            goes_on = move.kind == "continue" and not resting and not self._desk.stop_asked
            try:
                experiment = await self._engine.advance(self._room(len(made), experiments) if goes_on else 0)
            except Exhausted as exhausted:
                return Move("stop", f"the agent has nothing more to try: {exhausted}", "exhausted")
            if experiment is not None and experiment.number > 0:
                made[experiment.number] = experiment

    def _move(self, made: int, elapsed: float, experiments: int | None, minutes: float | None) -> Move:
        """Whether to go on after ``made`` experiments and ``elapsed`` minutes."""
        if experiments is not None and made >= experiments:
            return Move("stop", f"{experiments} experiments were made", "experiments")
        if minutes is not None and elapsed >= minutes:
            return Move("stop", f"{minutes:g} minutes are over", "minutes")
        return next_move(self.experiments, self.target.policy, made=made, minutes=elapsed)

    def _room(self, made: int, experiments: int | None) -> int:
        """How many more may be proposed, given those that are undecided."""
        open_ones = sum(one.number > 0 for one in self._recorder.state.unfinished)
        limits = [] if experiments is None else [experiments - made]
        if self.target.policy.experiments is not None:
            limits.append(self.target.policy.experiments - len(decided(self.experiments)))
        return max(0, min(limits) - open_ones) if limits else sys.maxsize

    # What a person says; each takes effect at once, or as soon as nothing is being judged

    def keep(self, number: int) -> Experiment:
        """Keep the experiment that waits.

        Raises:
            UsageError: It does not wait, or failed verification.
        """
        return self._decided(Command(kind="keep", data={"experiment": number}))

    def revert(self, number: int) -> Experiment:
        """Revert the experiment that waits.

        Raises:
            UsageError: It does not wait.
        """
        return self._decided(Command(kind="revert", data={"experiment": number}))

    def edit(self, source: str, hypothesis: str = "") -> None:
        """Have a person's kernel judged next, in place of the experiment that waits, if one does."""
        self._desk.do(Command(kind="edit", data={"source": source, "hypothesis": hypothesis}))

    def comment(self, text: str) -> None:
        """Tell the agent something; it reads it before its next proposal."""
        self._desk.do(Command(kind="comment", data={"text": text}))

    def pause(self) -> None:
        """Let `run` wait after the experiment in progress, and after a restart too, until `resume`."""
        self._desk.do(Command(kind="pause"))

    def resume(self) -> None:
        """Let `run` go on."""
        self._desk.do(Command(kind="resume"))

    def stop(self) -> None:
        """Let `run` end after the experiment in progress."""
        self._desk.do(Command(kind="stop"))

    # Opening and closing

    def close(self) -> None:
        """Let another process drive the run; what is being judged is called off and will be judged again."""
        if not self._closed:
            self._closed = True
            self._engine.close()
            self._recorder.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _open(self, take_edit: bool) -> None:
        """Put the folder in order; a person's edit of kernel.py is taken, left alone or set aside."""
        self._recorder.recover()
        self._recorder.events.write("opened", pid=os.getpid(), approval=self.target.approval)
        text = self._recorder.edited()
        if text is not None and take_edit:
            data = {"source": text, "hypothesis": "edit of kernel.py in the run folder"}
            self._recorder.commands.send(Command(kind="edit", data=data))
        elif text is None or not self._engine.agent_edits_kernel:
            self._recorder.restore()

    def _check_agent(self) -> None:
        """Let what would keep the agent from proposing show before the baseline is measured, and not after."""
        if self.best is None:
            self._engine.ready_agent()

    def _decided(self, command: Command) -> Experiment:
        experiment = self._desk.do(command)
        assert experiment is not None
        return experiment


def _wait_for(experiment: Experiment) -> str:
    number = experiment.number
    return (
        f"experiment {number} waits for a decision (the policy says {experiment.advice}: {experiment.reason}); "
        f"call keep({number}), revert({number}) or edit(source), or `autokernel keep {number}`"
    )
