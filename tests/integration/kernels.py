"""Kernels for tests: the C++ starters, and ones with planted faults."""

from __future__ import annotations

import shutil

import pytest

from autokernel import starters

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, so no C++ kernel can be compiled")


def starter(operation: str) -> str:
    return starters.source(operation, "cpp")


def faulty(operation: str, old: str, new: str) -> str:
    """A starter with one text replaced, which must be there."""
    text = starter(operation)
    assert old in text
    return text.replace(old, new)


# A wrong eps: right to the eye, off by about 1e-4.
WRONG_RMSNORM = faulty("rmsnorm", "n_cols + eps)", "n_cols + 1e-3f)")
# Every product a little too large: 1 part in 1000.
WRONG_MATMUL = faulty("matmul", "from_float<T>(acc[row][col])", "from_float<T>(acc[row][col] * 1.001f)")
# Right on the first calls of a process, wrong afterwards: what a trace cannot see.
LATE_RMSNORM = faulty(
    "rmsnorm",
    "    return y\n",
    "    CALLS.append(1)\n    return y * 1.001 if len(CALLS) > 8 else y\n\n\nCALLS = []\n",
)
