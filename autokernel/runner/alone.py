"""Run one kernel in a process of its own that was not forked, under a tool such as compute-sanitizer.

    python -m autokernel.runner.alone LEVEL REQUEST.json TOOL [OPTION ...]
    python -m autokernel.runner.alone REQUEST.json

The first form confines itself like a runner and becomes the tool, which runs the second.  That one
imports the kernel named by the request, makes inputs (which are no secret here: no value is judged)
and calls ``kernel_fn`` on each case, so that the tool sees every launch.  It ends with 0 if all calls
returned; what the tool finds is the tool's own report.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from autokernel.runner import sandbox

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Confine and become the tool, or run the kernel."""
    if len(arguments) == 1:
        _run(json.loads(Path(arguments[0]).read_text()))
        return
    level, request, *tool = arguments
    _confine(level, json.loads(Path(request).read_text()))
    os.execv(tool[0], [*tool, sys.executable, "-m", "autokernel.runner.alone", request])


def _confine(level: str, request: dict[str, Any]) -> None:
    scratch = Path(request["scratch"])
    if level == "namespaces":
        sandbox.isolate()
        forked = os.fork()  # the first process of the namespace; this one only waits for it
        if forked:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) & 0xFF)
        sandbox.die_with_parent()
    sandbox.confine_files(level, scratch, *[[Path(path) for path in request[name]] for name in ("needed", "homes")])
    os.chdir(scratch)
    sandbox.drop_privileges()
    sandbox.limit_resources(address_space=None, file_bytes=request["file_bytes"])


def _run(request: dict[str, Any]) -> None:
    import torch

    from autokernel import ops
    from autokernel.ops.spec import dtype_named
    from autokernel.runner import kernels

    torch.set_grad_enabled(False)
    spec = ops.resolve(request["reference"])
    file = Path(request["scratch"]) / "candidate.py"
    file.write_text(request["source"])
    generator = torch.Generator(device=request["device"]).manual_seed(request["seed"])
    function, _backend = kernels.load(file, inputs=request["inputs"], options=request["options"])
    lacks = kernels.lacking(function, request["optional"])
    for case in request["cases"]:
        if any(name in case["options"] for name in lacks):
            continue
        inputs = spec.make_inputs(case["shape"], dtype_named(case["dtype"]), generator)
        function(*inputs, **case["options"])
        if request["device"] != "cpu":
            torch.cuda.synchronize()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(sys.argv[1:])
