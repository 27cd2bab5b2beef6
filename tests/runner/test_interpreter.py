"""Triton's interpreter as the runner repairs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

HELPED = """
import torch, triton, triton.language as tl
from triton.runtime import interpreter as triton_interpreter
from autokernel.runner import interpreter

calls = []
core = triton_interpreter._patch_lang_core
triton_interpreter._patch_lang_core = lambda *args: calls.append(1) or core(*args)
interpreter.patch_once()

@triton.jit
def twice(x):
    return x + x

@triton.jit
def kernel(x, y, N: tl.constexpr):
    place = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + place, twice(twice(tl.load(x + place))) + tl.sum(tl.load(x + place), axis=0))

x = torch.arange(64.0)
for launch in (1, 2):
    y = torch.empty(64)
    kernel[(16,)](x, y, N=4)
    assert torch.equal(y, 4 * x + x.view(16, 4).sum(1).repeat_interleave(4)), y
    assert tl.core.is_builtin(tl.load), "the language is as before"
    assert len(calls) <= 6 * launch, len(calls)
"""


def test_a_function_that_calls_another_patches_the_language_once_in_a_launch(tmp_path):
    script = tmp_path / "helped.py"
    script.write_text(HELPED)

    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
