"""From a profile to a campaign: what of a target a kernel would serve, and what that is worth.

Units: microseconds; shares are fractions of the model's device time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autokernel.campaign_plan import CampaignTarget
from autokernel.errors import UsageError
from autokernel.profiling.strides import layout_of
from autokernel.profiling.targets import Target
from autokernel.target import Timing

if TYPE_CHECKING:
    from autokernel.profiling.report import ProfileReport

__all__ = ["campaign_targets"]

_MOST_SIZES = 4  # each costs the time of a measurement in every experiment


def campaign_targets(
    report: ProfileReport,
    names: Sequence[str] | None = None,
    *,
    most: int | None = None,
    least_share: float = 0.01,
    backend: str = "auto",
) -> list[CampaignTarget]:
    """The targets of a profile as a campaign takes them; see `ProfileReport.campaign_targets`."""
    targets = report.plan if names is None else [_offered(report.target(name)) for name in names]
    found = [one for target in targets if (one := _made(report, target, backend)) is not None]
    if names is None:
        found = [one for one in found if one.share >= least_share][:most]
    if not found:
        raise UsageError(
            f"the profile of {report.model} has no target with {100 * least_share:g} % of the time or more that a "
            "shipped operation covers; write a spec for what it lists (docs/adding-an-operation.md)"
        )
    return found


def _offered(target: Target) -> Target:
    target.timing_cases()  # raises, and says why the operation does not cover it
    return target


def _made(report: ProfileReport, target: Target, backend: str) -> CampaignTarget | None:
    """The covered calls in the dtype with most time; None if they took no time."""
    covered = sorted((one for one in target.variants if one.covered), key=lambda one: -one.device_us)
    alike = [one for one in covered if one.dtype == covered[0].dtype]
    device_us = sum(one.device_us for one in alike)
    if not device_us or not report.totals.device_us:
        return None
    floors = [one.floor_us for one in alike if one.floor_us and one.floor_is_bound]
    return CampaignTarget(
        operation=target.operation,
        share=min(1.0, device_us / report.totals.device_us),
        timing=tuple(
            Timing(
                shape=dict(one.shape or {}),
                options=dict(one.options),
                weight=one.device_us,
                layout=layout_of(target.operation, one),
                model_us=one.device_us / one.calls,
            )
            for one in alike[:_MOST_SIZES]
            if one.device_us
        ),
        dtype=alike[0].dtype,
        backend=backend,
        ceiling=device_us / sum(floors) if len(floors) == len(alike) else None,
        name=target.name,
    )
