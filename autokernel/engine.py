"""Experiments from proposal to decision: asks the agent, has the candidate judged, settles it.

The judge blocks, so it runs in threads of its own; meanwhile commands are carried out.  An
evaluation whose caller was cancelled goes on, and the next call takes its result up.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from autokernel import agents
from autokernel.agents.protocol import Agent, Context, Exhausted, Proposal
from autokernel.desk import Desk
from autokernel.errors import InvalidKernel
from autokernel.experiment import Experiment, State
from autokernel.measurement import Measurement
from autokernel.policy import Judged, decide
from autokernel.recorder import Recorder
from autokernel.runfolder import RunFolder
from autokernel.target import Target
from autokernel.verdict import Stage, StageResult, Status, Verdict

if TYPE_CHECKING:
    from autokernel.ops.spec import KernelSpec

__all__ = ["POLL_SECONDS", "Engine", "Judge"]

POLL_SECONDS = 0.1
_MOST_ATTEMPTS = 3
_MOST_REPEATS = 3
_MOST_LANES = 64


class Judge(Protocol):
    """What the engine needs of an evaluator; `autokernel.evaluator.Evaluator` is one.

    One that can judge several candidates at once says how many in ``lanes``, and may be called from as many
    threads.  One that has no operation yet has ``bind``, which is given the run's and returns the judge.
    """

    def evaluate(self, source: str, *, incumbent: str | None = None, compiled: bool = False) -> Judged: ...

    def prestart(self) -> None: ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    verdict: Verdict
    measurement: Measurement | None = None
    confirmation: Measurement | None = None


@dataclasses.dataclass
class _Lane:
    """A candidate that is being judged.

    Attributes:
        incumbent: The experiment whose kernel it is timed beside; None if there was no right one.
        first: There was no kernel that it had to beat.
        future: Its judgement.
        seconds: What the judging took, once it has ended.
    """

    incumbent: Experiment | None
    first: bool
    future: Future[Judged]
    seconds: float = 0.0


class Engine:
    """Makes experiments, as many at a time as the judge has lanes, and decides them in their order.

    Several candidates may be timed beside the same incumbent.  When one of them is kept, another that beat
    the old incumbent too has beaten a kernel that is not the best any more; it is judged again beside the
    new one.  So a kept kernel was always faster than the one that it replaces.

    Args:
        recorder: The run.
        desk: Where commands arrive.
        target: What is optimised; ``approval`` and ``policy`` count.
        agent: Who proposes; a name is looked up when it is first needed.
        judge: Who judges; an `Evaluator` of its own, made when it is first needed, when None.
    """

    def __init__(
        self, recorder: Recorder, desk: Desk, target: Target, agent: str | Agent, judge: Judge | None = None
    ) -> None:
        self._recorder = recorder
        self._desk = desk
        self._target = target
        self._folder = RunFolder(recorder.paths.root)
        self._agent = agent
        self._ready: Agent | None = None
        self._judge = judge
        self._spec: KernelSpec | None = None
        self._sources: dict[str, str] = {}
        self._refused = ""
        self._lanes: dict[int, _Lane] = {}  # by the experiment's number
        self._bound = False
        self._making = threading.Lock()
        self._here = threading.local()  # .number: the experiment that a thread of the judge is at work on
        threads = _MOST_LANES if hasattr(judge, "lanes") else 1
        self._thread = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="autokernel-judge")

    @property
    def agent_edits_kernel(self) -> bool:
        """The agent is a person at work in kernel.py, which is to be left alone."""
        name = self._agent if isinstance(self._agent, str) else ""
        return name == "human" or getattr(self._agent, "edits_kernel", False)

    @property
    def judging(self) -> int:
        """How many candidates are being judged."""
        return len(self._lanes)

    def close(self) -> None:
        """Call off what is being judged, and end the runner."""
        for number, lane in self._lanes.items():
            if not lane.future.done():
                self._recorder.cancelled(number)
        if self._judge is not None:
            self._judge.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def ready_agent(self) -> Agent:
        """The agent; asked at the first call whether it can work at all, before anything is measured.

        Raises:
            UsageError: No agent is called so, or it lacks something.
        """
        if self._ready is None:
            self._ready = agents.ready(self._agent, self._folder.path)
        return self._ready

    async def advance(self, more: int = 1) -> Experiment | None:
        """Bring the oldest undecided experiment to its decision (or to its wait).

        Meanwhile new ones are proposed, and judged where the judge has a lane free.

        Args:
            more: How many may be proposed.

        Returns:
            The experiment, or None if there is none, because a command interrupted the agent.

        Raises:
            Exhausted: The agent has nothing more to try.
            AutokernelError: The judging itself failed.
        """
        while True:
            undecided = [one for one in self._recorder.state.unfinished if one.state is State.PROPOSED]
            lanes = self._lane_count()
            running = sum(not lane.future.done() for lane in self._lanes.values())
            for experiment in [one for one in undecided if one.number not in self._lanes][: max(0, lanes - running)]:
                self._start(experiment)
            oldest = undecided[0] if undecided else None
            if oldest is not None and oldest.number in self._lanes and self._lanes[oldest.number].future.done():
                decided = self._finish(oldest)
                if decided is not None:
                    return decided
            elif more > 0 and len(undecided) < _ahead(lanes) and self._recorder.state.best is not None:
                try:
                    more = more - 1 if await self._propose() is not None else 0
                except Exhausted:
                    if oldest is None:
                        raise
                    more = 0  # what is being judged may give it ideas
            elif oldest is None:
                return None
            else:
                await self._until_one_ends()
                more = 0 if self._desk.interrupted else more

    async def _propose(self) -> Experiment | None:
        """Take a person's edit, or ask the agent; None if a command interrupted it."""
        edit = self._desk.take_edit()
        if edit is not None:
            return edit
        self._thread.submit(lambda: self._the_judge().prestart())
        agent = self.ready_agent()
        for _ in range(_MOST_REPEATS):
            heard, begin = tuple(self._recorder.state.comments), time.monotonic()
            self._recorder.events.write("proposing", agent=agent.name)
            proposal = await self._until_interrupted(agent.propose(self._context(heard)))
            if proposal is None:
                return self._desk.take_edit()
            self._refused = self._objection(proposal)
            if not self._refused:
                think = time.monotonic() - begin if proposal.seconds is None else proposal.seconds
                return self._recorder.propose(
                    proposal.source, proposal.hypothesis, agent.name,
                    tokens=proposal.tokens, think_seconds=think, trace=proposal.trace, heard=heard,
                )  # fmt: skip
            self._recorder.events.write("refused", agent=agent.name, refused=self._refused)
        raise Exhausted(f"{agent.name} made {_MOST_REPEATS} unusable proposals in a row; the last: {self._refused}")

    async def _until_interrupted(self, thinking: Awaitable[Proposal]) -> Proposal | None:
        """Wait for a proposal; a stop, a pause or an edit calls it off."""
        task = asyncio.ensure_future(thinking)
        self._desk.interrupted = False
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=POLL_SECONDS)
                self._desk.work()
                if self._desk.interrupted and not task.done():
                    return None
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    def _objection(self, proposal: Proposal) -> str:
        if not proposal.source.strip():
            return "the proposal is empty; give the whole text of kernel.py"
        before = self._recorder.judged_before(proposal.source)
        return f"the proposal is the kernel of experiment {before.number}, unchanged" if before else ""

    def _context(self, heard: tuple[str, ...]) -> Context:
        experiments = tuple(self._recorder.state.experiments.values())
        best = self._recorder.state.best
        assert best is not None  # the baseline is judged before an agent is asked
        spec = self._the_spec()
        return Context(
            folder=self._folder.path,
            target=self._target,
            description=spec.description,
            signature=spec.signature,
            kernel=self._source(best),
            best=best,
            experiments=experiments,
            judged=frozenset(one.blob for one in experiments),
            comments=heard,
            refused=self._refused,
            source=self._folder.source,
            diff=self._folder.diff,
            record=self._folder.record,
        )

    def _start(self, experiment: Experiment) -> None:
        """Have a candidate judged beside the best kernel that there is now."""
        number, best = experiment.number, self._recorder.state.best
        if best is not None and number > 0 and experiment.parent != best.commit and not experiment.correctness:
            experiment = self._recorder.rebase(number)
        attempts = self._recorder.state.attempts.get(number, 0)
        fault = _unusable(self._source(experiment), self._target.backend)
        if attempts >= _MOST_ATTEMPTS:
            fault = f"the process that judged it was killed {attempts} times while it did (out of memory?)"
        incumbent = _right(best)
        self._lanes[number] = lane = _Lane(incumbent, best is None or _is_stand_in(best), Future())
        if experiment.correctness or fault:  # judged before a kill, or nothing to judge
            lane.future.set_result(_rejected(fault, crash=attempts >= _MOST_ATTEMPTS))
            return
        source, rival = self._source(experiment), None if incumbent is None else self._source(incumbent)
        self._recorder.judging(number)
        lane.future = self._thread.submit(self._judge_in_thread, lane, number, source, rival)

    def _judge_in_thread(self, lane: _Lane, number: int, source: str, incumbent: str | None) -> Judged:
        options: dict[str, Any] = {"compiled": True} if self._target.compiled else {}
        self._here.number, begin = number, time.monotonic()
        try:
            return self._the_judge().evaluate(source, incumbent=incumbent, **options)
        finally:
            lane.seconds = time.monotonic() - begin

    async def _until_one_ends(self) -> None:
        """Wait until one more candidate is judged, and carry out commands meanwhile."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: Future[Judged]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        running = [lane.future for lane in self._lanes.values() if not lane.future.done()]
        for future in running:
            future.add_done_callback(wake)
        self._desk.interrupted = False
        while not any(future.done() for future in running):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), timeout=POLL_SECONDS)
            self._desk.work()

    def _finish(self, experiment: Experiment) -> Experiment | None:
        """Decide an experiment whose judging has ended.

        Returns:
            The experiment, decided, or waiting for a person; None if it has to be judged again.

        Raises:
            AutokernelError: The judging itself failed; the experiment stays undecided.
        """
        number, best = experiment.number, self._recorder.state.best
        lane = self._lanes.pop(number)
        if experiment.correctness:
            return self._settle(experiment)  # what a kill left judged is only decided
        try:
            evaluation = lane.future.result()
        except BaseException as error:
            self._recorder.cancelled(number)
            self._recorder.events.write("error", experiment=number, error=f"{type(error).__name__}: {error}")
            raise
        advice = decide(evaluation, self._target.policy, first=lane.first)
        if advice.kind == "keep" and number > 0 and lane.incumbent != _right(best):
            return None  # it beat a kernel that is not the best any more
        waits = self._target.approval == "approve" and number > 0 and evaluation.verdict.accepted
        judged = self._recorder.judged(number, evaluation, advice, seconds=lane.seconds, waits=waits)
        return judged if waits else self._settle(judged)

    def _settle(self, experiment: Experiment) -> Experiment:
        """Carry out the policy's advice, and make kernel.py the best kernel again."""
        if experiment.number == 0:
            decided = self._recorder.decide(0, "baseline", _baseline_reason(experiment))
            if not experiment.passed:
                self._recorder.note(f"{decided.reason}; the first candidate that passes will be kept")
        else:
            decided = self._recorder.decide(experiment.number, experiment.advice, experiment.reason)
        if not self.agent_edits_kernel or self._recorder.edited() is None:
            self._recorder.restore()
        return decided

    def _source(self, experiment: Experiment) -> str:
        """The kernel of an experiment; the two that are needed again and again are kept at hand."""
        if experiment.blob not in self._sources:
            best = self._recorder.state.best
            self._sources = {blob: text for blob, text in self._sources.items() if best and blob == best.blob}
            self._sources[experiment.blob] = self._recorder.history.source(experiment.commit)
        return self._sources[experiment.blob]

    def _the_spec(self) -> KernelSpec:
        if self._spec is None:
            from autokernel import ops

            self._spec = ops.resolve(self._target.reference)
        return self._spec

    def _lane_count(self) -> int:
        """How many candidates to judge at once; one where a person decides or writes the kernels."""
        if self._target.approval == "approve" or self.agent_edits_kernel:
            return 1
        return min(_MOST_LANES, getattr(self._judge, "lanes", 1))

    def _the_judge(self) -> Judge:
        """The judge, made or given the run's operation at the first call; called in its threads."""
        with self._making:
            if self._judge is None or (not self._bound and hasattr(self._judge, "bind")):
                self._judge = self._make_judge()
            self._bound = True
            return self._judge

    def _make_judge(self) -> Judge:
        from autokernel.evaluator import Evaluator, EvaluatorSettings
        from autokernel.ops import TimingCase

        target = self._target
        cases = [
            TimingCase(
                shape=case.shape, dtype=target.dtype, options=case.options, weight=case.weight, layout=case.layout
            )
            for case in target.timing
        ]
        settings = EvaluatorSettings(promising=1 + target.policy.threshold / 2)  # what may be kept is confirmed
        make = getattr(self._judge, "bind", Evaluator)
        judge: Judge = make(
            target.reference, device=target.device, timing_cases=cases, dtype=target.dtype, settings=settings,
            progress=self._progress,
        )  # fmt: skip
        return judge

    def _progress(self, update: dict[str, Any]) -> None:
        """Called in a thread of the judge."""
        self._recorder.events.write("progress", experiment=getattr(self._here, "number", None), **update)


def _right(best: Experiment | None) -> Experiment | None:
    """The best kernel's experiment, unless it is a baseline that failed verification."""
    return best if best is not None and best.passed else None


def _ahead(lanes: int) -> int:
    """How many experiments may be undecided, so that a slow one does not keep the other lanes waiting."""
    return 1 if lanes == 1 else 2 * lanes


def _baseline_reason(experiment: Experiment) -> str:
    if experiment.passed:
        return "the kernel that the run starts from"
    return f"the kernel that the run starts from {experiment.reason}"


def _is_stand_in(best: Experiment) -> bool:
    """Whether the best is none that a candidate must beat: the run's first kernel, wrong or left to PyTorch."""
    return not best.passed or (best.number == 0 and "library_call" in best.findings)


def _unusable(source: str, backend: str) -> str:
    """Why a text cannot be a candidate of this run, whatever it computes; "" if it can."""
    from autokernel import backends

    try:
        stated = backends.of(source)
    except InvalidKernel as error:
        return str(error)
    return "" if stated == backend else f"it says BACKEND = {stated!r}, and this run is for {backend!r}"


def _rejected(error: str, *, crash: bool) -> Judged:
    """The judgement of a candidate that no runner was asked about."""
    smoke = StageResult(name=Stage.SMOKE, status=Status.CRASH if crash else Status.FAIL)
    return _Evaluation(Verdict(accepted=False, stages=(smoke,), error=error))
