"""A campaign of two targets whose judges go by what a kernel's text says; git, folders and the loop are real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autokernel.campaign import Campaign
from autokernel.campaign_plan import CampaignTarget
from autokernel.scheduler import SchedulerSettings
from tests.scripted import ScriptedAgent, ScriptedEvaluator, kernel


def scripted_campaign(root: Path | str, *, seconds: float = 0.0, **options: Any) -> Campaign:
    """``norm`` (30 % of the time, kernels 1.2 to 2 times as fast) and ``soft`` (20 %, one twice as fast); turns of two.

    Args:
        root: Where it is made, as ``model``.
        seconds: That judging takes.
        options: Of `Campaign.create`, such as ``approval``.
    """
    targets = [
        CampaignTarget(operation="rmsnorm", share=0.3, name="norm", start=_kernel("rmsnorm", 1.0), ceiling=4.0),
        CampaignTarget(operation="softmax", share=0.2, name="soft", start=_kernel("softmax", 1.0)),
    ]
    settings = SchedulerSettings(turn=2, patience=2.0)
    given = {"model": "two layers", "device": "cpu", "scheduler": settings, "name": "model"}
    return Campaign.create(targets, root=root, **{**given, **judges(seconds), **options})


def judges(seconds: float = 0.0) -> dict[str, Any]:
    """``judge_of`` and ``agent_of`` of the campaign above."""
    speeds = {"norm": [1.2, 1.5, 1.1, 2.0], "soft": [2.0, 1.0]}

    def agent_of(name: str) -> ScriptedAgent:
        operation = "rmsnorm" if name == "norm" else "softmax"
        return ScriptedAgent([_kernel(operation, speed, f"# {index}") for index, speed in enumerate(speeds[name])])

    return {"judge_of": lambda name: ScriptedEvaluator(seconds=seconds), "agent_of": agent_of}


def _kernel(operation: str, speed: float, extra: str = "") -> str:
    return kernel(speed, extra=extra).replace("rmsnorm", operation)
