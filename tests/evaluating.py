"""Evaluators that tests share: starting one takes seconds, judging with it a fraction of one."""

from __future__ import annotations

import atexit
import dataclasses
import functools

from autokernel.evaluator import Evaluator, EvaluatorSettings
from autokernel.paired import TimingSettings
from autokernel.runner.client import Limits

__all__ = ["LIMITS", "brief_evaluator", "settings", "shared_evaluator"]

# Short deadlines, so that a test of a kernel that hangs does not hang for long itself.
LIMITS = Limits(load_seconds=6.0, call_seconds=20.0, timing_seconds=30.0)
_TIMING = TimingSettings(seconds=0.3, half_width=0.02)


def settings(isolation: str | None = None, limits: Limits = LIMITS) -> EvaluatorSettings:
    """Settings for tests: short deadlines, brief timing, no measured peaks."""
    return EvaluatorSettings(limits=limits, timing=_TIMING, isolation=isolation, runners=1, roofline=False)


def brief_evaluator(
    reference: str,
    *,
    device: str = "cpu",
    isolation: str | None = None,
    limits: Limits = LIMITS,
    runners: int | None = None,
) -> Evaluator:
    """A new evaluator with the settings for tests; the caller closes it."""
    brief = dataclasses.replace(settings(isolation, limits), runners=runners)
    return Evaluator(reference, device=device, settings=brief)


@functools.cache
def shared_evaluator(reference: str, isolation: str | None = None, device: str = "cpu") -> Evaluator:
    """The one evaluator for ``reference`` at ``isolation`` on ``device``, open until the tests end."""
    evaluator = brief_evaluator(reference, device=device, isolation=isolation)
    atexit.register(evaluator.close)
    return evaluator
