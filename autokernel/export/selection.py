"""Which kernel of a run is exported, and what is on record about it.

Only a kernel that was verified and kept leaves the workbench: that of the branch, or of another experiment
that was on it.  Nothing of the kernel is run here, so a run made on a GPU is exported anywhere.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from autokernel import backends, ops
from autokernel.errors import RunDamaged, UsageError
from autokernel.experiment import Experiment, State
from autokernel.history import blob_id
from autokernel.integration.evidence import PassedCase, passed_cases
from autokernel.measurement import Measurement
from autokernel.ops.spec import KernelSpec
from autokernel.runfolder import RunFolder
from autokernel.verdict import Verdict

__all__ = ["KeptKernel", "kept_kernel"]

_KEPT = ("baseline", "keep")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptKernel:
    """A kernel that a run has verified and kept.

    Attributes:
        run: The run.
        experiment: The experiment that judged it.
        spec: The operation that it computes.
        source: Its text.
        backend: ``triton``, ``cuda`` or ``cpp``.
        verdict: That of its experiment; accepted.
        measurement: The confirming measurement, or else the first one; None if it was not timed.
        passed: The cases that passed, and those that were timed.
    """

    run: RunFolder
    experiment: Experiment
    spec: KernelSpec
    source: str
    backend: str
    verdict: Verdict
    measurement: Measurement | None
    passed: tuple[PassedCase, ...]

    @property
    def interpreted(self) -> bool:
        """Whether it is a Triton kernel that was verified in Triton's interpreter, on a CPU."""
        return self.backend == "triton" and self.device_kind == "cpu"

    @property
    def device_kind(self) -> str:
        """``cpu`` or ``cuda``: where its tensors must lie."""
        return "cpu" if self.run.target.device == "cpu" else "cuda"

    @property
    def device_name(self) -> str:
        """The device's name, without the facts that follow it in the record."""
        return self.verdict.device.partition(" (")[0]


def kept_kernel(run: str | os.PathLike[str] | RunFolder, number: int | None = None) -> KeptKernel:
    """Find the kernel to export.

    Args:
        run: A run folder or an archive.
        number: An experiment whose kernel was kept; that of the best kernel when None.

    Raises:
        UsageError: There is no such run or experiment, its kernel was not kept, or it needs more than PyTorch.
        RunDamaged: The record lacks its verdict or its cases, or belongs to another text.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder(Path(run))
    experiment = folder.best if number is None else folder.experiment(number)
    if experiment is None:
        raise UsageError(
            f"{folder.path.name} has kept no kernel yet; judge the first with: autokernel run {folder.path}"
        )
    what = f"experiment {experiment.number} of {folder.path.name}"
    if experiment.state is not State.DECIDED:
        raise UsageError(f"{what} is not decided; decide it or let the run go on first")
    if not experiment.passed:
        raise UsageError(f"{what} failed verification, so its kernel is not exported; {_kept(folder)}")
    if experiment.decision not in _KEPT:
        raise UsageError(f"{what} was not kept ({experiment.reason}); {_kept(folder)}")
    source = folder.source(experiment.number)
    verdict, measured, confirmed = folder.judgement(experiment.number)
    if verdict is None or not verdict.accepted:
        raise RunDamaged(f"{what} counts as kept, but its record holds no accepted verdict; judge its kernel again")
    if experiment.blob and experiment.blob != blob_id(source):
        raise RunDamaged(f"the text of {what} is not the one that was judged; its hash is {blob_id(source)[:12]}")
    spec = ops.resolve(folder.target.reference)
    passed = passed_cases(spec, verdict, (measured, confirmed))
    if not passed:
        raise RunDamaged(f"the record of {what} names no case that passed, so nothing says where its kernel may run")
    return KeptKernel(
        run=folder, experiment=experiment, spec=spec, source=source, backend=backends.of(source), verdict=verdict,
        measurement=confirmed or measured, passed=tuple(passed),
    )  # fmt: skip


def _kept(folder: RunFolder) -> str:
    numbers = [str(one.number) for one in folder.experiments if one.decision in _KEPT and one.passed]
    return f"kept were: {', '.join(numbers)}" if numbers else "none was kept so far"
