"""What the integrity checks cost: an experiment with them and without them, in turn.

    python benchmarks/integrity.py [--device cpu] [--operation rmsnorm ...] [--rounds 5] [--json out.json]

An experiment is `Evaluator.evaluate` of a starter beside itself as the incumbent: five stages, timing,
confirmation.  Without the checks, calls in the runner are observed by nobody, replaced functions are
not looked for, and the second observer, the many calls, the fresh against the repeated content and the
look at what still runs are left out; values, guard bands of inputs, repeated and changing inputs stay, because they
are what verification is.  The order alternates, so that a busy machine slows both alike.

Prints the median seconds of both and the share that the checks add, for each operation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from autokernel import paired, starters
from autokernel.evaluator import Evaluator, EvaluatorSettings
from autokernel.runner.client import Runner
from autokernel.verdict import Finding
from autokernel.verifier import determinism, integrity

_ask = Runner.ask


def _unobserved(self: Runner, request: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Have the runner make each call bare, and answer ``inspect`` without asking."""
    if request["op"] == "inspect":
        return {"ok": True, "findings": []}
    if request["op"] == "call":
        request = {**request, "observe": "nobody", "poison": None}
    return _ask(self, request, **options)


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """While the block runs, experiments go without the integrity checks."""

    def nothing(*_args: object, **_options: object) -> Iterator[Finding]:
        return iter(())

    with contextlib.ExitStack() as stack:
        for owner, name, replacement in (
            (Runner, "ask", _unobserved),
            (paired._CaseTimer, "_observe", lambda *_args, **_options: None),
            (determinism, "_seen_otherwise", lambda *_args, **_options: None),
            (determinism, "_endure", lambda *_args, **_options: None),
            (integrity, "still_running", nothing),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def experiment(evaluator: Evaluator, source: str, seed: int) -> float:
    """Seconds of one experiment, the runners up before it begins."""
    evaluator.prestart()
    for runner in evaluator._spares:
        runner.wait_ready()
    begin = time.perf_counter()
    evaluation = evaluator.evaluate(source, incumbent=source, seed=seed)
    seconds = time.perf_counter() - begin
    if not evaluation.verdict.accepted:
        raise SystemExit(f"the starter of {evaluator.spec.name} was rejected: {evaluation.verdict.reason}")
    return seconds


def measure(name: str, device: str, rounds: int) -> dict[str, Any]:
    """Median seconds with and without the checks for one operation's starter."""
    with Evaluator(name, device=device, settings=EvaluatorSettings(large=False)) as evaluator:
        source = starters.source(name, "triton" if evaluator.device.is_gpu else "cpp")
        experiment(evaluator, source, 0)
        checked, bare = [], []
        for number in range(rounds):
            checked.append(experiment(evaluator, source, number))
            with unchecked():
                bare.append(experiment(evaluator, source, number))
        where = str(evaluator.device)
    with_checks, without = statistics.median(checked), statistics.median(bare)
    return {
        "operation": name,
        "device": where,
        "with_s": with_checks,
        "without_s": without,
        "added": with_checks / without - 1,
        "samples_with_s": checked,
        "samples_without_s": bare,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--operation", nargs="*", default=["rmsnorm", "softmax", "layernorm", "matmul"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.operation:
        row = measure(name, arguments.device, arguments.rounds)
        rows.append(row)
        print(
            f"{name:18} {row['with_s']:6.2f} s with, {row['without_s']:6.2f} s without the checks: "
            f"{row['added']:+.0%} ({row['device']})",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
