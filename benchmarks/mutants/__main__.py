"""The command line of the mutation test; see the package."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autokernel import ops, starters
from autokernel.hardware import detect
from benchmarks import mutants as package
from benchmarks.mutants import judging, report
from benchmarks.mutants.faults import Mutant, live, mutants, sample
from benchmarks.mutants.judging import Outcome


def main(words: Sequence[str] | None = None) -> int:
    args = _arguments(words)
    rows_file = args.out / "mutants.jsonl"
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))  # the runner works at the same time
    args.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    gpu = detect(args.device).is_gpu
    wanted: set[str] = set()
    for backend in args.backend or (["cuda", "triton"] if gpu else ["cpp", "triton"]):
        for operation in args.operation or ops.names():
            if backend not in starters.backends(operation):
                continue
            starter = live(starters.source(operation, backend), backend)
            found = sample(mutants(operation, backend, starter), args.sample, args.seed)
            wanted |= {one.key for one in found}
            done = {row["key"] for row in judging.read_rows(rows_file) if not (args.retry and _is_accepted(row))}
            chosen = [one for one in found if one.key not in done]
            if chosen and not args.report and not _late(begin, args.minutes):
                _judge(starter, chosen, rows_file, begin, args)
    rows = [row for row in judging.read_rows(rows_file) if row["key"] in wanted]
    if not rows:
        print(f"{rows_file} holds none of these mutants yet; run without --report", file=sys.stderr)
        return 2
    print(f"{len(rows)} of the {len(wanted)} mutants asked for are judged.\n")
    (args.out / "mutants.json").write_text(json.dumps(report.summary(rows), indent=1))
    print(report.tables(rows))
    return 0


def _judge(starter: str, chosen: list[Mutant], file: Path, begin: float, args: argparse.Namespace) -> None:
    """Judge mutants of one starter; each one's row is on disk before the next is judged."""
    rows = judging.judge(
        starter,
        chosen,
        device=args.device,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
        late=lambda: _late(begin, args.minutes),
    )
    with file.open("a") as handle:
        for row in rows:
            handle.write(json.dumps(row) + "\n")
            handle.flush()
            os.fsync(handle.fileno())


def _is_accepted(row: judging.Row) -> bool:
    return row["outcome"] in (Outcome.EQUIVALENT, Outcome.TOLERATED, Outcome.MISSED)


def _late(begin: float, minutes: float | None) -> bool:
    return minutes is not None and time.monotonic() - begin > 60 * minutes


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--operation", action="append", choices=ops.names(), help="only this one; repeatable")
    parser.add_argument("--backend", action="append", choices=starters.BACKENDS, help="only this one; repeatable")
    parser.add_argument("--sample", type=int, default=None, help="so many mutants of each starter; all without it")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N")
    parser.add_argument("--minutes", type=float, default=None, help="begin no mutant after so many minutes")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "autokernel-mutants")
    parser.add_argument("--retry", action="store_true", help="judge those again that were accepted")
    parser.add_argument("--report", action="store_true", help="judge nothing; count those that were asked for")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
