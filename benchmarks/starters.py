"""Verify and time every starter on this machine's device; print a table, write JSON.

    python benchmarks/starters.py [--device auto] [--backend triton] [--op softmax] [--compile] [--out FILE]

A row: the verdict, the starter's latency, PyTorch's, the speedup with its interval, the share of the
roofline floor, and how long the whole evaluation took.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autokernel import ops, starters
from autokernel.evaluator import Evaluation, Evaluator


def row_of(name: str, backend: str, dtype: str, evaluation: Evaluation) -> dict[str, object]:
    """One line of the table as JSON-ready data."""
    row: dict[str, object] = {
        "operation": name,
        "backend": backend,
        "dtype": dtype,
        "verdict": "accept" if evaluation.verdict.accepted else "reject",
        "reason": evaluation.verdict.reason,
        "skipped": len(evaluation.verdict.skipped),
        "stages": {stage.name.value: round(stage.seconds, 2) for stage in evaluation.verdict.stages},
        "seconds": round(evaluation.seconds, 2),
    }
    if evaluation.measurement is not None:
        case = evaluation.measurement.cases[0]
        row["case"] = case.label
        row["method"] = case.method
        row["floor_us"] = case.floor_us
        row["fraction_of_peak"] = case.fraction_of_peak
        row["notes"] = list(evaluation.measurement.notes)
        row["timing_seconds"] = round(evaluation.measurement.seconds, 2)
        row["latency_us"] = {role: contestant.latency_us for role, contestant in case.contestants.items()}
        row["call_us"] = {role: contestant.call_us for role, contestant in case.contestants.items()}
        row["speedups"] = {
            role: [ratio.value, ratio.low, ratio.high] for role, ratio in evaluation.measurement.speedups.items()
        }
    return row


def print_row(row: dict[str, object]) -> None:
    """Print one line; a rejected starter says why."""
    head = f"{row['operation']:<17}{row['backend']:<7}{row['verdict']:<8}{row['seconds']:>6.1f} s"
    if "latency_us" not in row:
        print(f"{head}  {str(row['reason'])[:400]}", flush=True)
        return
    latency, speedups = row["latency_us"], row["speedups"]
    assert isinstance(latency, dict) and isinstance(speedups, dict)
    others = "  ".join(
        f"{role} {latency[role]:.1f} us {value:.3f}x ({low:.3f} to {high:.3f})"
        for role, (value, low, high) in speedups.items()
    )
    peak = row["fraction_of_peak"]
    share = f"{peak:.0%} of floor" if isinstance(peak, float) else "no floor"
    reason = "" if row["verdict"] == "accept" else f"  {str(row['reason'])[:400]}"
    print(
        f"{head}  {latency['candidate']:9.1f} us  {share:<13} {others}  {row['method']} {row['case']}{reason}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--backend", action="append", help="only this backend; repeatable")
    parser.add_argument("--op", action="append", help="only this operation; repeatable")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--compile", action="store_true", help="time torch.compile of the baseline too")
    parser.add_argument("--out", type=Path, default=None, help="write all rows as JSON")
    parser.add_argument("--minutes", type=float, default=None, help="start no evaluation after this many minutes")
    parser.add_argument("--think", type=float, default=0.0, help="seconds between evaluations, an agent's thinking")
    args = parser.parse_args()
    rows = []
    begin = time.monotonic()
    for name in args.op or ops.names():
        with Evaluator(name, device=args.device, dtype=args.dtype) as evaluator:
            usable = ("triton", "cuda") if evaluator.device.is_gpu else ("cpp",)
            for backend in [
                one for one in usable if one in (args.backend or usable) and one in starters.backends(name)
            ]:
                if args.minutes is not None and time.monotonic() - begin > 60 * args.minutes:
                    print(f"{name} {backend}: not run, {args.minutes:g} minutes are over", flush=True)
                    continue
                evaluator.prestart()  # as the loop does while the agent thinks
                time.sleep(args.think)
                evaluation = evaluator.evaluate(starters.source(name, backend), compiled=args.compile)
                rows.append(row_of(name, backend, evaluator.dtype, evaluation))
                print_row(rows[-1])
                if args.out:
                    args.out.write_text(json.dumps({"device": str(evaluator.device), "rows": rows}, indent=1))
    return 0 if all(row["verdict"] == "accept" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
