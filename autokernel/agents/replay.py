"""The replay agent: proposes again what was proposed in a recorded run.

Each kernel is verified and timed anew, so a run of another machine shows what it is worth here.
"""

from __future__ import annotations

from pathlib import Path

from autokernel.agents.protocol import Context, Exhausted, Proposal
from autokernel.errors import UsageError
from autokernel.runfolder import RunFolder

__all__ = ["ReplayAgent"]


class ReplayAgent:
    """Proposes the kernels of a recorded run in their order, leaving out those judged here before.

    Args:
        path: The recorded run's folder.

    Raises:
        UsageError: The folder is no run.
    """

    name = "replay"

    def __init__(self, path: str | Path) -> None:
        self._run = RunFolder(path)

    async def propose(self, context: Context) -> Proposal:
        """Return the next recorded kernel.

        Raises:
            Exhausted: All have been proposed.
            UsageError: The recorded run is of another operation or backend.
        """
        recorded, here = self._run.target, context.target
        if (recorded.operation, recorded.backend) != (here.operation, here.backend):
            raise UsageError(
                f"{self._run.path} is a run of {recorded.operation} with {recorded.backend}, this one of "
                f"{here.operation} with {here.backend}; replay a run of the same operation and backend"
            )
        for experiment in self._run.experiments:
            if experiment.blob not in context.judged:
                trace = {"recorded": experiment.to_dict()}
                source = self._run.source(experiment.number)
                return Proposal(source=source, hypothesis=experiment.hypothesis, trace=trace)
        raise Exhausted(f"all experiments of {self._run.path} have been proposed")
