"""Offsets that 32-bit arithmetic cannot hold: which operations they are tried for, and what they show."""

from __future__ import annotations

import dataclasses
import gc
import re

import pytest

from autokernel import ops, starters
from autokernel.evaluator import Evaluator
from autokernel.verdict import CaseResult, Status
from autokernel.verifier import large
from autokernel.verifier.stages import load_request
from autokernel.verifier.trial import Trial
from tests.evaluating import LIMITS, brief_evaluator, shared_evaluator
from tests.planting import needs_compiler, right

SUMS = r'''
import torch

from autokernel.backends import cpp

KERNEL_TYPE = "reduce"
BACKEND = "cpp"
CPP_SRC = r"""
template <typename T> float sum(const T* x, int n) {
    float partial[16] = {};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int lane = 0; lane < 16; ++lane) partial[lane] += to_float(x[i + lane]);
    float total = 0.0f;
    for (float value : partial) total += value;
    for (; i < n; ++i) total += to_float(x[i]);
    return total;
}

extern "C" void sums(int dtype, const void* x, void* y, int64_t rows, int64_t n) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (OFFSET row = 0; row < (OFFSET)rows; ++row) {
            const OFFSET offset = (OFFSET)((UNSIGNED)row * (UNSIGNED)n) MASK;  // wraps where OFFSET is too narrow
            ((T*)y)[row] = from_float<T>(sum((const T*)x + offset, (int)n));
        }
    });
}
"""
DEFINES = {"OFFSET": "OFFSET_TYPE", "UNSIGNED": "UNSIGNED_TYPE", "MASK": "MASK_TEXT"}
sums = cpp.compile(CPP_SRC, defines=DEFINES).function("sums", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    if x.numel():
        sums(x.dtype, x.contiguous(), y, y.numel(), x.shape[-1])
    return y
'''


def with_offsets(offset: str, unsigned: str, mask: str = "") -> str:
    return SUMS.replace("OFFSET_TYPE", offset).replace("UNSIGNED_TYPE", unsigned).replace("MASK_TEXT", mask)


WIDE = with_offsets("int64_t", "uint64_t")


def tried(
    source: str, elements: int, name: str = "reduce", evaluator: Evaluator | None = None, **options: object
) -> CaseResult:
    """The result of the case alone, with tensors of more than ``elements`` elements."""
    evaluator = evaluator or shared_evaluator(name)
    with evaluator._runners(1) as (runner,):
        answer = runner.ask(load_request(evaluator.spec, "candidate", source), seconds=60, doing="loading")
        assert answer["ok"], answer
        trial = Trial(runner, evaluator.spec, "cpu", answer["backend"])
        result = large.judge_large(trial, "float32", 5, options=options, elements=elements)
    gc.collect()
    return result


@pytest.mark.parametrize("name", ops.names())
def test_rows_are_found_where_they_are_independent(name):
    rows = large.rows_of(ops.get(name))

    if name in ("cross_entropy", "vectorsum"):
        assert rows is None, "one number binds all rows together"
    else:
        assert rows is not None
        assert rows.name == {"flash_attention": "B", "rotary_embedding": "B"}.get(name, "M")
        assert rows.inputs[0] == 0


@needs_compiler
@pytest.mark.parametrize("name", ["rmsnorm", "softmax"])
def test_a_right_kernel_passes_on_many_rows(name):
    result = tried(right(name), 1 << 20, name)

    assert result.status is Status.PASS, result.reason
    assert result.elements


@needs_compiler
@pytest.mark.thorough
def test_an_extension_is_tried_on_many_rows_too():
    source = starters.source("rotary_embedding", "cpp")
    wrong = source.replace("a[i] * s[i] + b[i] * c[i]", "a[i] * s[i] - b[i] * c[i]")

    assert tried(source, 1 << 20, "rotary_embedding", interleaved=False).status is Status.PASS
    assert tried(wrong, 1 << 20, "rotary_embedding", interleaved=False).status is Status.FAIL
    assert tried(wrong, 1 << 20, "rotary_embedding").status is Status.PASS


@needs_compiler
def test_an_offset_that_wraps_is_seen_at_the_rows_behind_the_boundary():
    # 2**20 elements and offsets of 20 bits stand for 2**31 elements and offsets of 31 bits.
    wraps = with_offsets("int64_t", "uint64_t", "& 0xfffff")

    result = tried(wraps, 1 << 20)

    assert result.status is Status.FAIL
    assert re.match(r"of the rows \[0, .*\] ... 22 of 23, element \[\d+\] is ", result.reason), result.reason
    assert tried(wraps, 1 << 18).status is Status.PASS, "nothing wraps below 2**20"
    assert tried(WIDE, 1 << 20).status is Status.PASS


@needs_compiler
def test_what_has_no_room_is_not_tested_and_says_how_much_it_needs():
    result = tried(WIDE, 1 << 40)

    assert result.status is Status.SKIP
    assert "not tested: needs 2200 GB of memory" in result.reason


@needs_compiler
@pytest.mark.slow
def test_offsets_of_32_bits_fail_beyond_two_to_the_31st_element_and_those_of_64_bits_do_not():
    with brief_evaluator("reduce", limits=dataclasses.replace(LIMITS, call_seconds=150.0)) as patient:
        narrow = tried(with_offsets("int32_t", "uint32_t"), large.ELEMENTS, evaluator=patient)
        if narrow.status is Status.SKIP:
            pytest.skip(narrow.reason)
        wide = tried(WIDE, large.ELEMENTS, evaluator=patient)

    assert narrow.status in (Status.FAIL, Status.CRASH), narrow.reason
    assert wide.status is Status.PASS, wide.reason
