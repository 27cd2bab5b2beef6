"""What is wrong with a candidate whatever its values: judged from what its calls showed.

Findings about one call (mutated inputs, aliased outputs, replaced functions) are made where the call
is made; here are those that need the whole trial.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from autokernel.runner.client import Runner, RunnerDied
from autokernel.verdict import Finding
from autokernel.verifier.trial import Trial

__all__ = ["closing_findings", "floods", "still_running"]

# A kernel may leave small sums or index arithmetic to PyTorch, not the work.
LIBRARY_SHARE = 0.25
HOST_SHARE = 0.25
EXCESS_BYTES = 4 << 30
_IDLE_SECONDS = 0.06


def closing_findings(trial: Trial) -> Iterator[Finding]:
    """Yield the findings that a whole trial gives rise to."""
    try:
        trial.inspect()
    except RunnerDied:
        pass  # the stage that it ended in says so
    yield from _library_work(trial)
    if trial.peak_bytes > EXCESS_BYTES:
        yield Finding("excess_memory", f"one call took {trial.peak_bytes / 1e9:.1f} GB of device memory")
    yield from floods(trial.runner)
    yield from still_running(trial)


def floods(runner: Runner) -> Iterator[Finding]:
    """Yield a finding if more was printed than a person would read, or a limit ended the runner."""
    if runner.flood is not None:
        yield Finding(*runner.flood)
    output = runner.output_bytes()
    if output > runner.limits.output_bytes:
        yield Finding("output_flood", f"{output / 1e6:.1f} MB of text were printed")


def _library_work(trial: Trial) -> Iterator[Finding]:
    total = max(trial.observed_elements, 1)
    share = sum(trial.computed.values()) / total
    if share > LIBRARY_SHARE and not trial.told("library_call"):
        names = sorted(trial.computed, key=lambda name: -trial.computed[name])
        yield Finding(
            "library_call",
            f"PyTorch operators called from kernel_fn ({', '.join(names[:6])}) worked on {share:.0%} of the elements",
        )
    share = trial.host_elements / total
    if share > HOST_SHARE:
        yield Finding(
            "host_computation",
            f"{share:.0%} of the elements were read on the host (as NumPy arrays, Python numbers or copies)",
        )


def still_running(trial: Trial) -> Iterator[Finding]:
    """Look for processes and threads that go on when no call is under way."""
    try:
        before = trial.runner.cpu_seconds()
        time.sleep(_IDLE_SECONDS)
        used = trial.runner.cpu_seconds() - before
    except OSError:  # the runner has ended
        return
    if used > 0.5 * _IDLE_SECONDS:
        yield Finding("work_after_return", f"{used * 1e3:.0f} ms of processor time were used while no call was running")
    left = trial.runner.descendants()
    if left:
        yield Finding("process_left", f"processes that the candidate started still run: {', '.join(left[:5])}")
