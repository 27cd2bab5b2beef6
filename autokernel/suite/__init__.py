"""Our kernels against everything that a user could take instead, over many sizes, in one run.

    for outcome in bench(select(gpu=True), device="auto"):
        print(outcome.label, outcome.latency_us)

A configuration is an operation with sizes and a dtype; for each of them our kernel (tuned, else the
starter), PyTorch's operators, `torch.compile` and installed libraries are timed interleaved in one
process, after our kernel was verified and every other one's values were compared.

Units: microseconds.
"""

from __future__ import annotations

from autokernel.suite.configurations import Configuration, configuration, select
from autokernel.suite.contestants import Contestant, alternatives, ours
from autokernel.suite.outcome import Outcome, document
from autokernel.suite.running import SuiteSettings, bench

__all__ = [
    "Configuration",
    "Contestant",
    "Outcome",
    "SuiteSettings",
    "alternatives",
    "bench",
    "configuration",
    "document",
    "ours",
    "select",
]
