"""Kernel files that cannot be used, misbehave or cheat: one clear reason each, and the judge goes on.

After each of them the same evaluator judges a good kernel, and nothing is left behind: no process
but the runners that wait, no folder, no memory.
"""

from __future__ import annotations

import dataclasses
import gc
import re
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autokernel.evaluator import Evaluator
from autokernel.verdict import Stage, Verdict
from tests.evaluating import LIMITS, brief_evaluator
from tests.planting import at_import, right, wrapped

pytest.importorskip("triton")

GOOD = right("rmsnorm", "triton")  # in Triton's interpreter: no compiler is waited for
SECONDS = 30.0  # what a verdict may take at most, on a busy machine
SMOKE = [Stage.SMOKE]


@dataclasses.dataclass(frozen=True)
class Bad:
    """A bad kernel: its text, what the reason must say, and the finding that it must give."""

    source: str
    reason: str = ""
    finding: str = ""


def call(body: str, before: str = "") -> str:
    return wrapped("rmsnorm", body, before, backend="triton")


def also(statements: str, before: str = "") -> str:
    """A kernel that is right and does something else first."""
    return call(textwrap.dedent(statements).strip() + "\nreturn right(*inputs, **options)", before)


UNUSABLE = {
    "no Python": Bad("KERNEL_TYPE = 'rmsnorm'\ndef kernel_fn(:\n", r"kernel\.py line 2: SyntaxError"),
    "a null byte": Bad("x = '\0'\n", "null byte"),
    "nothing": Bad("", "defines no function kernel_fn"),
    "no kernel_fn": Bad("def kernel(x): pass\n", "defines no function kernel_fn"),
    "a kernel_fn that is no function": Bad("kernel_fn = 3\n", "defines no function kernel_fn"),
    "too few parameters": Bad(
        "def kernel_fn(x):\n    return x\n", r"kernel_fn\(x\) cannot be called with 2 tensors, eps=\.\.\."
    ),
    "an option missing": Bad("def kernel_fn(x, weight):\n    return x\n", "unexpected keyword argument 'eps'"),
    "a module that is not there": Bad(
        "import no_such_module\n", r"No module named 'no_such_module' \(kernel.py line 1"
    ),
    "an exception at import": Bad("\n\n1 / 0\n", r"ZeroDivisionError: division by zero \(kernel.py line 3: 1 / 0\)"),
    "SystemExit at import": Bad(
        "import sys\nsys.exit(0)\n", r"importing kernel.py left the process with SystemExit\(0\)"
    ),
    "KeyboardInterrupt at import": Bad("raise KeyboardInterrupt\n", "importing kernel.py raised KeyboardInterrupt"),
    "endless recursion at import": Bad("def f(): f()\nf()\n", "RecursionError"),
    "endless recursion of brackets": Bad(
        "x = " + "(" * 5000 + ")" * 5000 + "\n", "nested parentheses|RecursionError|MemoryError"
    ),
}

RETURNS = {
    "None": ("return None", "kernel_fn returned NoneType, not a tensor"),
    "a tuple": ("return right(*inputs, **options), 1", "kernel_fn returned tuple, not a tensor"),
    "a NumPy array": ("return __import__('numpy').zeros((7, 8))", "kernel_fn returned ndarray, not a tensor"),
    "another shape": ("return right(*inputs, **options).T", r"the output has shape \[8, 7\], expected \[7, 8\]"),
    "a scalar": ("return torch.zeros(())", r"the output has shape \[\], expected \[7, 8\]"),
    "nothing of the right width": ("return torch.empty(0, 8)", r"the output has shape \[0, 8\], expected \[7, 8\]"),
    "another dtype": ("return right(*inputs, **options).double()", "the output has dtype float64, expected float32"),
    "half the precision": ("return right(*inputs, **options).half()", "the output has dtype float16, expected float32"),
    "complex numbers": ("return torch.zeros(7, 8, dtype=torch.complex64)", "dtype complex64, expected float32"),
    "another device": ("return torch.empty(7, 8, device='meta')", "the output is on meta, expected cpu"),
    "a sparse tensor": ("return torch.zeros(7, 8).to_sparse()", "sparse"),
}

DIES = {
    "os._exit at import": (at_import("import os\nos._exit(0)"), "left with exit status 0 .* while importing kernel.py"),
    "os._exit in a call": (call("import os\nos._exit(3)"), "left with exit status 3 .* while calling kernel_fn"),
    "a segmentation fault": (call("import ctypes\nctypes.string_at(0)"), "ended by SIGSEGV .* while calling kernel_fn"),
    "abort": (call("import os\nos.abort()"), "ended by SIG(ABRT|SEGV)"),
    "40 GB": (
        call("return torch.empty(10 << 30).fill_(1)"),
        "can't allocate memory: you tried to allocate 42949672960 bytes",
    ),
    "40 GB in small pieces": (
        call("kept = [torch.empty(16 << 20).fill_(0) for _ in range(640)]\nreturn kept[0]"),
        "can't allocate memory|ended by SIGKILL",
    ),
    "an endless loop at import": (
        at_import(
            """
            import signal
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            while True:
                pass
            """
        ),
        "no end after 3 s while importing kernel.py; killed",
    ),
    "an endless call": (
        call("while True: pass"),
        "no end after 4 s while calling kernel_fn on M=7 N=8 float32; killed",
    ),
    "a closed connection": (
        also("import os\nos.closerange(3, 100)"),
        "while calling kernel_fn",
    ),
    "garbage on the connection": (
        call(
            """
            import os
            for fd in range(3, 40):
                try:
                    os.write(fd, b"\\xff" * 64)
                except OSError:
                    pass
            return right(*inputs, **options)
            """
        ),
        "while calling kernel_fn",
    ),
}

FOUND = {
    "output without end at import": Bad(
        at_import("while True:\n    print('x' * 100_000)"), "File too large", "output_flood"
    ),
    "a flood of output in a call": Bad(also("print('x' * 3_000_000)"), "", "output_flood"),
    "SIGKILL to itself": Bad(also("import os\nos.kill(os.getpid(), 9)"), "", "process_signalled"),
    "SIGSTOP to its group": Bad(also("import os\nos.kill(0, 19)"), "", "process_signalled"),
    "children": Bad(
        call(
            """
            import os, time
            for _ in range(5):
                if os.fork() == 0:
                    time.sleep(100)
                    os._exit(0)
            return right(*inputs, **options)
            """
        ),
        "",
        "process_left",
    ),
    "an orphan in a session of its own": Bad(
        call(
            """
            import os, time
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(100)
                os._exit(0)
            os.wait()
            return right(*inputs, **options)
            """
        ),
        "",
        "process_left",
    ),
    "a program that is started": Bad(at_import("import subprocess\nsubprocess.run(['true'])"), "", "process_started"),
    "a file outside its folder": Bad(
        at_import("try:\n    open('/var/tmp/autokernel_was_here', 'w')\nexcept OSError:\n    pass"), "", "file_written"
    ),
    "a file in its folder": Bad(at_import("open('answers.bin', 'w').write('1')"), "", "file_written"),
    "a thread that works after the call": Bad(
        call(
            """
            import threading
            def work():
                while True:
                    sum(range(1000))
            threading.Thread(target=work, daemon=True).start()
            return right(*inputs, **options)
            """
        ),
        "",
        "thread_left",
    ),
    "a thread that finishes the result": Bad(
        call(
            """
            import threading
            out = torch.empty_like(inputs[0])
            threading.Timer(0.05, lambda: out.copy_(right(*inputs, **options))).start()
            return out
            """
        ),
        "element",
        "thread_left",
    ),
    "a patched comparison": Bad(
        at_import("import torch\ntorch.allclose = lambda *a, **k: True"), "", "patched_function"
    ),
    "a patched clock": Bad(also("import time\ntime.perf_counter = time.monotonic"), "", "patched_function"),
    "a patched method": Bad(at_import("import torch\ntorch.Tensor.contiguous = lambda t: t"), "", "patched_function"),
    "a patched code object": Bad(
        at_import("import torch\ntorch.testing.assert_close.__code__ = (lambda *a, **k: None).__code__"),
        "",
        "patched_function",
    ),
    "a patched watcher": Bad(
        at_import("import autokernel.runner.recorder as r\nr.Recorder.trespasses = lambda self: []"),
        "",
        "patched_function",
    ),
    "another number of threads": Bad(
        at_import("import torch\ntorch.set_num_threads(torch.get_num_threads() + 3)"), "", "changed_setting"
    ),
    "another default dtype": Bad(
        at_import("import torch\ntorch.set_default_dtype(torch.float64)"), "", "changed_setting"
    ),
    "gradients": Bad(also("torch.set_grad_enabled(True)"), "", "changed_setting"),
    "no garbage collection": Bad(at_import("import gc\ngc.disable()"), "", "changed_setting"),
    "a new seed": Bad(also("torch.manual_seed(0)"), "", "changed_random_state"),
    "a changed input": Bad(call("y = right(*inputs, **options)\ninputs[1].zero_()\nreturn y"), "", "input_mutated"),
    "a write outside the input": Bad(
        also("x = inputs[0]\nx.as_strided((1,), (1,), x.storage_offset() + 56).fill_(0)"),
        "",
        "out_of_bounds_write",
    ),
    "its input as the output": Bad(
        call("return inputs[0].copy_(right(*inputs, **options))"), "", "output_aliases_input"
    ),
    "a view of its input": Bad(call("return inputs[0][:]"), "element", "output_aliases_input"),
    "a subclass": Bad(
        call("return right(*inputs, **options).as_subclass(Agreeable)", "class Agreeable(torch.Tensor):\n    pass"),
        "",
        "tensor_subclass",
    ),
    "attributes on the output": Bad(
        call("y = right(*inputs, **options)\ny.cpu = lambda: y\nreturn y"), "", "instance_attributes"
    ),
    "a look at the stack": Bad(also("import sys\nsys._getframe(1).f_locals"), "", "stack_inspection"),
    "a look through inspect": Bad(also("import inspect\ninspect.stack()"), "", "stack_inspection"),
    "a look at every object": Bad(also("import gc\ngc.get_objects()"), "", "stack_inspection"),
    "an audit hook": Bad(at_import("import sys\nsys.addaudithook(lambda *a: None)"), "", "audit_hook"),
    "a library of the machine": Bad(at_import("import ctypes\nctypes.CDLL('libm.so.6')"), "", "native_code"),
    "PyTorch's operator": Bad(
        "import torch\n"
        "def kernel_fn(x, weight, eps=1e-6):\n"
        "    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)\n",
        "",
        "library_call",
    ),
    "PyTorch's operators, one by one": Bad(
        "def kernel_fn(x, weight, eps=1e-6):\n"
        "    root = (x.float().pow(2).mean(-1, keepdim=True) + eps).sqrt()\n"
        "    return (x.float() / root * weight.float()).to(x.dtype)\n",
        "",
        "library_call",
    ),
    "NumPy": Bad(
        "import numpy as np, torch\n"
        "def kernel_fn(x, weight, eps=1e-6):\n"
        "    a, w = (t.float().numpy().astype(np.float64) for t in (x, weight))\n"
        "    y = a / np.sqrt((a * a).mean(-1, keepdims=True) + eps) * w\n"
        "    return torch.from_numpy(y).to(x.dtype)\n",
        "",
        "host_computation",
    ),
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for temporary files, empty but for what the judge puts there."""
    folder = tmp_path_factory.mktemp("scratch")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    yield folder
    tempfile.tempdir = before


@pytest.fixture(scope="module")
def evaluator(scratch: Path) -> Iterator[Evaluator]:
    limits = dataclasses.replace(LIMITS, load_seconds=3.0, call_seconds=4.0, memory_bytes=1 << 30)
    with brief_evaluator("rmsnorm", limits=limits) as evaluator:
        evaluator.verify(GOOD, stages=SMOKE)
        yield evaluator


def living(evaluator: Evaluator) -> set[int]:
    """The processes that descend from the evaluator's zygote."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [evaluator._zygote._process.pid]
    while todo:
        inner = children.get(todo.pop(), [])
        found |= set(inner)
        todo += inner
    return found


def arenas() -> int:
    """How many arenas this process has mapped."""
    gc.collect()
    return sum("autokernel-arena" in line for line in Path("/proc/self/maps").read_text().splitlines())


def nothing_is_left(evaluator: Evaluator, scratch: Path) -> None:
    """Assert that only the runners that wait for the next candidate are there, within two seconds."""
    evaluator.prestart()
    waiting = len(evaluator._spares)
    expected = (2 * waiting, waiting + 1, waiting)  # a supervisor to each runner; the zygote's own folder
    deadline = time.monotonic() + 2.0
    while True:
        counts = (len(living(evaluator)), len(list(scratch.glob("autokernel-*"))), arenas())
        if counts == expected or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert counts == expected, "processes, folders, arenas"


def judged(evaluator: Evaluator, scratch: Path, source: str) -> Verdict:
    """The verdict on a bad kernel, given in time; a good one is accepted right afterwards."""
    begin = time.monotonic()
    verdict = evaluator.verify(source, stages=SMOKE)
    assert time.monotonic() - begin < SECONDS
    assert not verdict.accepted
    assert verdict.reason
    good = evaluator.verify(GOOD, stages=SMOKE)
    assert good.accepted, good.reason
    nothing_is_left(evaluator, scratch)
    return verdict


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_that_cannot_be_used_says_why(evaluator, scratch, name):
    verdict = judged(evaluator, scratch, UNUSABLE[name].source)

    assert re.search(UNUSABLE[name].reason, verdict.reason), verdict.reason
    assert verdict.error == verdict.reason
    assert verdict.stages[0].cases[0].label == "import"


@pytest.mark.parametrize("name", RETURNS)
def test_what_is_returned_must_be_a_tensor_of_the_right_kind(evaluator, scratch, name):
    body, reason = RETURNS[name]

    verdict = judged(evaluator, scratch, call(body))

    assert verdict.failed_stage is Stage.SMOKE
    assert re.search(reason, verdict.reason), verdict.reason


@pytest.mark.parametrize("name", DIES)
def test_a_kernel_that_ends_or_blocks_its_process_costs_only_its_own(evaluator, scratch, name):
    source, reason = DIES[name]

    verdict = judged(evaluator, scratch, source)

    assert re.search(reason, verdict.reason), verdict.reason
    assert verdict.correctness in ("TIMEOUT" if "no end after" in reason else "CRASH", "TIMEOUT")


@pytest.mark.parametrize("name", FOUND)
def test_a_trespass_is_found_and_named(evaluator, scratch, name):
    bad = FOUND[name]

    verdict = judged(evaluator, scratch, bad.source)

    assert bad.finding in {finding.kind for finding in verdict.findings}, verdict.to_dict()
    assert re.search(bad.reason or bad.finding, verdict.reason), verdict.reason
    assert not Path("/var/tmp/autokernel_was_here").exists()


def test_a_secret_in_the_environment_does_not_reach_a_candidate(evaluator, scratch, monkeypatch):
    monkeypatch.setenv("A_TESTS_API_KEY", "secret-81c2")
    evaluator._restart()

    verdict = judged(evaluator, scratch, at_import("import os\nraise RuntimeError(str(dict(os.environ)))"))

    assert "'TRITON_INTERPRET'" in verdict.reason
    assert "secret-81c2" not in str(verdict.to_dict())
    assert "API_KEY" not in verdict.reason
