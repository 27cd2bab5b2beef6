"""Profiling: a model in, its operations ranked by the device time that can be recovered out."""

from autokernel.profiling.capture import capture
from autokernel.profiling.profiler import profile
from autokernel.profiling.report import ProfileReport, Totals, WhatIf
from autokernel.profiling.targets import Layout, Site, Target, Variant

__all__ = [
    "Layout",
    "ProfileReport",
    "Site",
    "Target",
    "Totals",
    "Variant",
    "WhatIf",
    "capture",
    "profile",
]
