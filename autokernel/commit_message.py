"""What a commit of an experiment says: the hypothesis, the outcome, and trailers for plain git."""

from __future__ import annotations

from autokernel.experiment import Experiment, State
from autokernel.measurement import Ratio

__all__ = ["commit_message"]


def commit_message(experiment: Experiment) -> str:
    """The commit message: the hypothesis, what came out, and trailers that plain git can read."""
    words = " ".join(experiment.hypothesis.split()) or f"Experiment {experiment.number}"
    subject = words if len(words) <= 100 else words[:97] + "..."
    paragraphs = [subject] + ([words] if subject != words else [])
    trailers = {"Experiment": str(experiment.number), "Agent": " ".join(experiment.agent.split())}
    if experiment.state is State.DECIDED:
        paragraphs.append(_verdict_line(experiment))
        trailers |= {"Decision": experiment.decision, "Correctness": experiment.correctness}
        for trailer, name in (("Speedup", "pytorch"), ("Speedup-Over-Best", "incumbent")):
            if name in experiment.speedups:
                trailers[trailer] = _interval(experiment.speedups[name])
    paragraphs.append("\n".join(f"{name}: {value}" for name, value in trailers.items()))
    return "\n\n".join(paragraphs) + "\n"


def _verdict_line(experiment: Experiment) -> str:
    time = f", {experiment.latency_us:.4g} us" if experiment.latency_us is not None else ""
    untested = f", {experiment.untested} cases not tested" if experiment.untested else ""
    reason = " ".join(experiment.reason.split())
    return f"{experiment.correctness}{time}{untested}. By {experiment.decided_by}: {reason[:600]}"


def _interval(ratio: Ratio) -> str:
    return f"{ratio.value:.4g} ({ratio.low:.4g} to {ratio.high:.4g})"
