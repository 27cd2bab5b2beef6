"""One experiment from proposal to decision: asks the agent, has the candidate judged, settles it.

The judge blocks, so it runs in a thread of its own; meanwhile commands are carried out.  An
evaluation whose caller was cancelled goes on, and the next call takes its result up.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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


class Judge(Protocol):
    """What the engine needs of an evaluator; `autokernel.evaluator.Evaluator` is one."""

    def evaluate(self, source: str, *, incumbent: str | None = None, compiled: bool = False) -> Judged: ...

    def prestart(self) -> None: ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    verdict: Verdict
    measurement: Measurement | None = None
    confirmation: Measurement | None = None


class Engine:
    """Makes experiments, one at a time.

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
        self._in_flight: tuple[int, Future[Judged]] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="autokernel-judge")

    @property
    def agent_edits_kernel(self) -> bool:
        """The agent is a person at work in kernel.py, which is to be left alone."""
        name = self._agent if isinstance(self._agent, str) else ""
        return name == "human" or getattr(self._agent, "edits_kernel", False)

    def close(self) -> None:
        """Call off what is being judged, and end the runner."""
        if self._in_flight is not None and not self._in_flight[1].done():
            self._recorder.cancelled(self._in_flight[0])
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

    async def advance(self) -> Experiment | None:
        """Bring the unfinished experiment, or a new one, to its decision (or to its wait).

        Returns:
            The experiment, or None if the agent was interrupted by a command.

        Raises:
            Exhausted: The agent has nothing more to try.
            AutokernelError: The judging itself failed.
        """
        unfinished = [one for one in self._recorder.state.unfinished if one.state is State.PROPOSED]
        experiment = unfinished[0] if unfinished else await self._propose()
        return None if experiment is None else await self.judge(experiment)

    async def judge(self, experiment: Experiment) -> Experiment:
        """Have a candidate judged and decided; what a kill left judged is only decided.

        Returns:
            The experiment, decided, or waiting for a person.

        Raises:
            AutokernelError: The judging itself failed; the experiment stays undecided.
        """
        number, begin = experiment.number, time.monotonic()
        if experiment.correctness:
            return self._settle(experiment)
        attempts = self._recorder.state.attempts.get(number, 0)
        fault = _unusable(self._source(experiment), self._target.backend)
        if attempts >= _MOST_ATTEMPTS:
            fault = f"the process that judged it was killed {attempts} times while it did (out of memory?)"
        evaluation = _rejected(fault, crash=attempts >= _MOST_ATTEMPTS) if fault else await self._evaluate(experiment)
        best = self._recorder.state.best
        advice = decide(evaluation, self._target.policy, first=best is None or _is_stand_in(best))
        waits = self._target.approval == "approve" and number > 0 and evaluation.verdict.accepted
        seconds = time.monotonic() - begin
        judged = self._recorder.judged(number, evaluation, advice, seconds=seconds, waits=waits)
        return judged if waits else self._settle(judged)

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

    async def _evaluate(self, experiment: Experiment) -> Judged:
        """Run the judge in its thread, and carry out commands meanwhile."""
        number = experiment.number
        if self._in_flight is None or self._in_flight[0] != number:
            self._in_flight = number, self._start(experiment)
        future = self._in_flight[1]
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: Future[Judged]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        future.add_done_callback(wake)
        while not future.done():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), timeout=POLL_SECONDS)
            self._desk.work()
        self._in_flight = None
        try:
            return future.result()
        except BaseException as error:
            self._recorder.cancelled(number)
            self._recorder.events.write("error", experiment=number, error=f"{type(error).__name__}: {error}")
            raise

    def _start(self, experiment: Experiment) -> Future[Judged]:
        best = self._recorder.state.best
        incumbent = None if best is None or not best.passed else self._source(best)
        source = self._source(experiment)
        options: dict[str, Any] = {"compiled": True} if self._target.compiled else {}
        self._recorder.judging(experiment.number)
        return self._thread.submit(lambda: self._the_judge().evaluate(source, incumbent=incumbent, **options))

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

    def _the_judge(self) -> Judge:
        """The judge; called in its thread, because starting one takes a moment."""
        if self._judge is None:
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
            self._judge = Evaluator(
                target.reference, device=target.device, timing_cases=cases, dtype=target.dtype, settings=settings,
                progress=self._progress,
            )  # fmt: skip
        return self._judge

    def _progress(self, update: dict[str, Any]) -> None:
        """Called in the judge's thread."""
        number = self._in_flight[0] if self._in_flight is not None else None
        self._recorder.events.write("progress", experiment=number, **update)


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
