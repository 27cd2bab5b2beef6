"""AutoKernel: a kernel optimisation workbench with verified, measured experiments.

The names below are loaded when they are first used, so that ``import autokernel`` costs nothing
and a machine without PyTorch can look at a run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autokernel.campaign import Campaign as Campaign
    from autokernel.campaign_plan import CampaignTarget as CampaignTarget
    from autokernel.errors import AutokernelError as AutokernelError
    from autokernel.evaluator import Evaluation as Evaluation
    from autokernel.evaluator import Evaluator as Evaluator
    from autokernel.experiment import Experiment as Experiment
    from autokernel.experiment import RunStatus as RunStatus
    from autokernel.experiment import Summary as Summary
    from autokernel.export import export_hf as export_hf
    from autokernel.export import export_package as export_package
    from autokernel.integration import check_model as check_model
    from autokernel.integration import integrate as integrate
    from autokernel.measurement import Measurement as Measurement
    from autokernel.measurement import Ratio as Ratio
    from autokernel.ops.spec import KernelSpec as KernelSpec
    from autokernel.ops.spec import Magnitude as Magnitude
    from autokernel.ops.spec import TimingCase as TimingCase
    from autokernel.policy import PolicySettings as PolicySettings
    from autokernel.profiling import ProfileReport as ProfileReport
    from autokernel.profiling import profile as profile
    from autokernel.results import load as load_results
    from autokernel.runfolder import RunFolder as RunFolder
    from autokernel.scheduler import SchedulerSettings as SchedulerSettings
    from autokernel.session import Session as Session
    from autokernel.target import Timing as Timing
    from autokernel.verdict import Verdict as Verdict
    from autokernel.workers.evaluator import DaskEvaluator as DaskEvaluator

__version__ = "0.1.0"

_HOMES = {
    "AutokernelError": "errors",
    "Campaign": "campaign",
    "CampaignTarget": "campaign_plan",
    "DaskEvaluator": "workers.evaluator",
    "Evaluation": "evaluator",
    "Evaluator": "evaluator",
    "Experiment": "experiment",
    "KernelSpec": "ops.spec",
    "Magnitude": "ops.spec",
    "Measurement": "measurement",
    "PolicySettings": "policy",
    "ProfileReport": "profiling",
    "Ratio": "measurement",
    "RunFolder": "runfolder",
    "RunStatus": "experiment",
    "SchedulerSettings": "scheduler",
    "Session": "session",
    "Summary": "experiment",
    "Timing": "target",
    "TimingCase": "ops.spec",
    "Verdict": "verdict",
    "check_model": "integration",
    "export_hf": "export",
    "export_package": "export",
    "integrate": "integration",
    "profile": "profiling",
}

__all__ = [*sorted(_HOMES), "load_results"]


def __getattr__(name: str) -> Any:
    if name == "load_results":
        return importlib.import_module("autokernel.results").load
    if name in _HOMES:
        return getattr(importlib.import_module(f"autokernel.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'autokernel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
