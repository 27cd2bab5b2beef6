"""From the chosen targets of a profile to a campaign, or to a run of its own for a single one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autokernel.errors import UsageError

if TYPE_CHECKING:
    from autokernel.profiling import ProfileReport

__all__ = ["known_targets", "make", "split"]


def known_targets(report: ProfileReport, names: Iterable[str]) -> list[str]:
    """Those that the report has: a profile that was made again may have others."""
    there = {target.name for target in report.targets}
    return [name for name in names if name in there]


def split(report: ProfileReport, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The chosen targets that a shipped operation covers, and those that none does."""
    covered = [name for name in names if report.target(name).offered]
    return covered, [name for name in names if name not in covered]


def make(
    report: ProfileReport,
    names: Sequence[str],
    *,
    campaigns: str | Path = "campaigns",
    runs: str | Path = "runs",
    device: str = "auto",
    agent: str = "auto",
    approval: str = "auto",
) -> Path:
    """Make a campaign of several targets, or a run of one; nothing is judged yet.

    Args:
        report: The profile.
        names: Targets that shipped operations cover.
        campaigns, runs: Folders in which campaigns and runs lie.
        device, agent, approval: As for `Campaign.create`.

    Returns:
        The folder that was made.

    Raises:
        UsageError: No target was chosen, one is not covered, or the profile is of another kind of device.
        AutokernelError: The folder cannot be made.
    """
    if not names:
        raise UsageError("no target that a shipped operation covers is chosen; choose one in the table")
    _check_device(report, device)
    targets = report.campaign_targets(names)
    if len(targets) > 1:
        from autokernel.campaign import Campaign

        return Campaign.create(
            targets, model=report.model, root=campaigns, device=device, agent=agent, approval=approval
        ).path
    from autokernel.session import Session

    (target,) = targets
    with Session.create(
        target.operation, backend=target.backend, device=device, dtype=target.dtype, shapes=target.timing, root=runs,
        agent=agent, approval=approval,
    ) as session:  # fmt: skip
        return session.path


def _check_device(report: ProfileReport, device: str) -> None:
    """Shares that were measured on a GPU say nothing about a CPU, nor the other way round."""
    from autokernel import hardware

    here = hardware.detect(device)
    there = str(report.device.get("kind", here.kind))
    if here.kind != there:
        raise UsageError(
            f"the model was profiled on {report.device.get('name', 'another device')} ({there}), and this would run on "
            f"{here.name} ({here.kind}), where it spends its time differently; profile it here"
        )
