"""Run kernels in Triton's interpreter, in a process of its own: a line of JSON in, a line out.

The interpreter must be switched on before triton is imported, so the test process cannot do it itself.
A request is ``[spec, kernel]``: what `ops.resolve` takes, and the path of a kernel file.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import traceback
from typing import Any

from autokernel import ops
from autokernel.runner.interpreter import repair_bfloat16
from tests.ops import judging


def answer(reference: str, kernel: str) -> dict[str, Any]:
    """The error over the bound, and the seconds it took, for each case of the spec."""
    description = importlib.util.spec_from_file_location("kernel_under_test", kernel)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    spec, ratios, seconds = ops.resolve(reference), {}, {}
    for case in judging.cases(spec, every_dtype=False):
        start = time.perf_counter()
        ratios[case.label] = judging.judge(spec, case, module.kernel_fn)
        seconds[case.label] = time.perf_counter() - start
    return {"ratios": ratios, "seconds": seconds}


def main() -> None:
    repair_bfloat16()
    for line in sys.stdin:
        try:
            reply = answer(*json.loads(line))
        except Exception:
            reply = {"error": traceback.format_exc()}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
