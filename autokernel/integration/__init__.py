"""Kernels put back into a model, and the whole checked.

`integrate` makes a model use the kernels that runs have kept, wherever they were verified;
`check_model` compares the outcome with the plain model: its outputs in higher precision, its time.
"""

from __future__ import annotations

from autokernel.integration.check import InputCheck, ModelCheck, check_model
from autokernel.integration.integrated import Integration, integrate, integration_of
from autokernel.integration.kernels import Kernel
from autokernel.integration.report import PlaceReport, Report
from autokernel.integration.trees import Call

__all__ = [
    "Call",
    "InputCheck",
    "Integration",
    "Kernel",
    "ModelCheck",
    "PlaceReport",
    "Report",
    "check_model",
    "integrate",
    "integration_of",
]
