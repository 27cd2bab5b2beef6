"""How often does the judge keep a kernel that is no faster, and find one that is a little faster?

    python benchmarks/decisions.py same --count 100 [--op rmsnorm] [--device auto]
    python benchmarks/decisions.py faster --percent 3 --count 100 [--device auto]

``same``: candidate and incumbent are one text; every keep is a false one.  ``faster``: both run a
chain of dependent operations before they store their result, and the incumbent's chain is longer by
the given percentage, so the candidate is faster by construction.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autokernel import starters
from autokernel.evaluator import Evaluator, EvaluatorSettings
from autokernel.policy import PolicySettings, decide
from autokernel.verdict import Stage

SPEC = """
import torch
from autokernel.ops import KernelSpec

SPEC = KernelSpec(
    name="chain",
    reference=lambda x: x * 2,
    make_inputs=lambda shape, dtype, generator: (
        torch.randn(shape["n"], generator=generator, device=generator.device).to(dtype),
    ),
    shapes=({"n": 1000}, {"n": 5000}),
    edge_shapes=({"n": 1}, {"n": 1023}),
    timing_shapes=({"n": 1 << 20},),
    cpu_timing_shapes=({"n": 1 << 14},),
    dtypes=("float32",),
    strided_inputs=(),
)
"""

TRITON = """
import torch
import triton
import triton.language as tl

KERNEL_TYPE = "chain"
BACKEND = "triton"
LENGTH = {length}


@triton.jit
def chain_kernel(x_ptr, y_ptr, n, one, zero, length, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    for _ in range(length):
        x = x * one + zero
    tl.store(y_ptr + offs, x * 2, mask=offs < n)


def kernel_fn(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    chain_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1.0000000001, 0.0, LENGTH, BLOCK=1024)
    return y
"""

CPP = '''
import torch

from autokernel.backends import cpp

KERNEL_TYPE = "chain"
BACKEND = "cpp"
LENGTH = {length}

CPP_SRC = r"""
extern "C" void chain(const float* x, float* y, int64_t n, float one, float zero, int64_t length) {{
    for (int64_t i = 0; i < n; i++) {{
        float value = x[i];
        for (int64_t step = 0; step < length; step++) value = value * one + zero;
        y[i] = value * 2;
    }}
}}
"""

chain = cpp.compile(CPP_SRC).function("chain", "float32*", "float32*", "int64", "float32", "float32", "int64")


def kernel_fn(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    chain(x, y, x.numel(), 1.0000000001, 0.0, LENGTH)
    return y
'''


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("same", "faster"))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--percent", type=float, default=3.0)
    parser.add_argument("--op", default="rmsnorm")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--verify", action="store_true", help="all five stages each time, not the smoke stage alone")
    parser.add_argument("--minutes", type=float, default=None, help="stop early after this many minutes")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.what == "same":
            reference = args.op
        else:
            file = Path(folder) / "chain_spec.py"
            file.write_text(SPEC)
            reference = str(file)
        settings = EvaluatorSettings(runners=1)
        with Evaluator(reference, device=args.device, settings=settings) as evaluator:
            gpu = evaluator.device.is_gpu
            candidate, incumbent = _texts(args, gpu)
            return _repeat(evaluator, candidate, incumbent, args)


def _texts(args: argparse.Namespace, gpu: bool) -> tuple[str, str]:
    if args.what == "same":
        text = starters.source(args.op, "triton" if gpu else "cpp")
        return text, text
    template, length = (TRITON, 4000) if gpu else (CPP, 100)
    return template.format(length=length), template.format(length=round(length * (1 + args.percent / 100)))


def _repeat(evaluator: Evaluator, candidate: str, incumbent: str, args: argparse.Namespace) -> int:
    kept, ratios, seconds, reasons = 0, [], [], []
    begin = time.monotonic()
    stages = None if args.verify else [Stage.SMOKE]
    for number in range(args.count):
        evaluator.prestart()
        evaluation = evaluator.evaluate(candidate, incumbent=incumbent, stages=stages)
        decision = decide(evaluation, PolicySettings())
        kept += decision.kind == "keep"
        seconds.append(evaluation.seconds)
        if evaluation.measurement is not None:
            ratio = evaluation.measurement.speedups["incumbent"]
            ratios.append(ratio.value)
            reasons.append([decision.kind, ratio.value, ratio.low, ratio.high, decision.reason])
        else:
            reasons.append([decision.kind, None, None, None, decision.reason])
            print(f"{number}: {decision.reason[:300]}", flush=True)
        if args.out:
            args.out.write_text(json.dumps({"device": str(evaluator.device), "kept": kept, "rows": reasons}, indent=1))
        if args.minutes is not None and time.monotonic() - begin > 60 * args.minutes:
            break
    spread = statistics.pstdev(ratios) if ratios else float("nan")
    if not ratios:
        return 1
    print(
        f"{args.what} on {evaluator.device}: kept {kept} of {number + 1}; "
        f"ratio median {statistics.median(ratios):.4f}, "
        f"standard deviation {spread:.4f}; {statistics.median(seconds):.2f} s per evaluation (median)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
