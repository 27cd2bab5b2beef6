"""The mutation test of the verifier: what faults it plants, and what it makes of the verifier's verdicts."""

from __future__ import annotations

import ast
import json
import math

import pytest

from autokernel import ops, starters
from autokernel.errors import UsageError
from autokernel.ops import Case
from autokernel.runner.client import Limits
from benchmarks.mutants import __main__ as command
from benchmarks.mutants import judging, report
from benchmarks.mutants.cpp_faults import faults as cpp_faults
from benchmarks.mutants.equivalence import Equivalence
from benchmarks.mutants.faults import Mutant, live, mutants, sample
from benchmarks.mutants.judging import Outcome
from benchmarks.mutants.python_faults import faults as python_faults
from tests.planting import needs_compiler

STARTERS = [(name, backend) for name in ops.names() for backend in starters.backends(name)]
LIMITS = Limits(load_seconds=60.0, call_seconds=30.0)


def texts(found, text):
    return {(fault.kind, fault.apply(text)) for fault in found}


# Planting


@pytest.mark.parametrize(("name", "backend"), STARTERS)
def test_each_mutant_of_a_starter_is_another_valid_python_text(name, backend):
    source = live(starters.source(name, backend), backend)

    found = mutants(name, backend, source)

    assert len(found) >= 50
    assert len({mutant.source for mutant in found} | {source}) == len(found) + 1
    assert len({mutant.key for mutant in found}) == len(found)
    assert len({mutant.fault for mutant in found}) >= 12
    for mutant in sample(found, 30, 1):
        ast.parse(mutant.source)
        assert mutant.before != mutant.after
        assert mutant.before == " ".join(source.splitlines()[mutant.line - 1].split())


def test_the_same_text_has_the_same_mutants_and_a_larger_sample_begins_with_a_smaller_one():
    source = starters.source("reduce", "triton")
    first, again = mutants("reduce", "triton", source), mutants("reduce", "triton", source)

    assert first == again
    assert sample(first, 20, 1)[:7] == sample(again, 7, 1) != sample(again, 7, 2)
    assert sorted(mutant.key for mutant in sample(first, None, 1)) == sorted(mutant.key for mutant in first)


def test_a_starter_gets_the_constants_that_let_all_its_lines_run():
    source = live(starters.source("rmsnorm", "cpp"), "cpp")

    assert "\nLANES = 16" in source and "\nSTREAM = True" in source
    assert "\nBLOCK_ROWS = 64\n" in live(starters.source("cross_entropy", "triton"), "triton")
    assert live(starters.source("rmsnorm", "triton"), "triton") == starters.source("rmsnorm", "triton")


CPP = """
template <typename T> float dot(const T* x, const T* w, int64_t n, int64_t m) {
    float sum = 0.0f, largest = -INFINITY;
    float part[4] = {};
    for (int64_t i = 0; i < n; ++i) sum += to_float(x[i * m + 1]) - to_float(w[i]);  // i < n
    __syncthreads();
    return n == 0 && m > 0 ? std::max(sum, largest) : std::min<float>(sum, 0.70710678f);
}
"""


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("bound_inclusive", "i < n; ++i", "i <= n; ++i"),
        ("bound_off_by_one", "i < n; ++i", "i < n - 1; ++i"),
        ("condition_negated", "n == 0", "n != 0"),
        ("condition_dropped", "n == 0 && m > 0 ?", "m > 0 ?"),
        ("operator_changed", "[i * m + 1]", "[i * m - 1]"),
        ("term_dropped", "[i * m + 1]", "[i * m ]"),
        ("term_dropped", "[i * m + 1]", "[m + 1]"),
        ("operands_swapped", "to_float(x[i * m + 1]) - to_float(w[i])", "to_float(w[i]) - to_float(x[i * m + 1])"),
        ("accumulate_missing", "sum += ", "sum = "),
        (
            "accumulate_in_half",
            "sum += to_float(x[i * m + 1]) - to_float(w[i])",
            "sum = to_float(from_float<float16>(sum + (to_float(x[i * m + 1]) - to_float(w[i]))))",
        ),
        ("constant_changed", "int64_t i = 0", "int64_t i = 1"),
        ("constant_cut", "0.70710678f", "0.7071f"),
        ("sign_flipped", "-INFINITY", "INFINITY"),
        ("wrong_initial_value", "-INFINITY", "0.0f"),
        ("initial_value_missing", "part[4] = {}", "part[4]"),
        ("min_max_swapped", "std::max(", "std::min("),
        ("arguments_swapped", "(sum, largest)", "(largest, sum)"),
        ("synchronisation_dropped", "__syncthreads();", ";"),
        ("statement_dropped", "sum += to_float(x[i * m + 1]) - to_float(w[i]);", ";"),
        ("wrong_size", "[i * m + 1]", "[i * n + 1]"),
    ],
)
def test_a_fault_of_each_kind_is_planted_in_cpp_text(kind, old, new):
    assert CPP.count(old) == 1

    assert (kind, CPP.replace(old, new)) in texts(cpp_faults(CPP), CPP)


def test_neither_comments_nor_template_brackets_are_mutated():
    for _kind, text in texts(cpp_faults(CPP), CPP):
        assert "// i < n\n" in text
        assert text.startswith("\ntemplate <typename T> float dot(const T* x, const T* w, int")
        assert "std::min<float>" in text or "std::max<float>" in text or "m > 0 ?" not in text


PYTHON = """
@triton.jit
def row_kernel(x_ptr, y_ptr, stride_x, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = (cols < n_cols) & (row >= 0)
        total += tl.load(x_ptr + row * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(y_ptr + row, tl.maximum(total, -float("inf")) - row, mask=inside)


def kernel_fn(x, eps=1e-5):
    x = x.contiguous()
    row_kernel[(triton.cdiv(x.shape[0], 16),)](x, y, x.stride(0) if x.dim() > 1 else 1)
"""


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("bound_inclusive", "cols < n_cols)", "cols <= n_cols)"),
        ("bound_off_by_one", "cols < n_cols)", "cols < n_cols - 1)"),
        ("bound_off_by_one", "triton.cdiv(x.shape[0], 16)", "(x.shape[0]) // (16)"),
        ("condition_dropped", "(cols < n_cols) & (row >= 0)", "(row >= 0)"),
        ("condition_dropped", "x.stride(0) if x.dim() > 1 else 1", "x.stride(0)"),
        ("mask_dropped", ", mask=inside, other=0.0", ""),
        ("fill_dropped", ", other=0.0", ""),
        ("cast_dropped", "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
        ("copy_dropped", "x = x.contiguous()", "x = x"),
        ("precision_lowered", "dtype=tl.float32", "dtype=tl.float16"),
        ("precision_lowered", '"ieee"', '"tf32"'),
        ("accumulate_missing", "tl.dot(x, y, total, ", "tl.dot(x, y, "),
        ("accumulate_missing", "total += ", "total = "),
        ("term_dropped", "row * stride_x", "row"),
        ("operator_changed", "row * stride_x", "row + stride_x"),
        ("wrong_size", "row * stride_x", "row * n_cols"),
        ("wrong_initial_value", '-float("inf")', "0.0"),
        ("min_max_swapped", "tl.maximum", "tl.minimum"),
        ("statement_dropped", "x = x.contiguous()", "pass"),
        ("constant_changed", "eps=1e-5", f"eps={1e-5 * 1.001!r}"),
    ],
)
def test_a_fault_of_each_kind_is_planted_in_python_text(kind, old, new):
    assert PYTHON.count(old) == 1

    assert (kind, PYTHON.replace(old, new)) in texts(python_faults(PYTHON), PYTHON)


def test_a_sum_in_half_precision_is_planted_in_a_triton_kernel():
    (narrow,) = [text for kind, text in texts(python_faults(PYTHON), PYTHON) if kind == "accumulate_in_half"]

    assert "total = (total + tl.load(" in narrow
    assert ").to(tl.float16).to(total.dtype)\n" in narrow


# Judging


STARTER = live(starters.source("reduce", "cpp"), "cpp")
CASES = [Case(shape={"M": 5, "N": size}, dtype=dtype) for size in (1, 17, 100, 300) for dtype in ("float32", "float16")]


def planted(old: str, new: str) -> Mutant:
    """The C++ starter of reduce with one text replaced, as a mutant."""
    assert STARTER.count(old) == 1
    return Mutant("reduce", "cpp", "planted", 1, old, new, STARTER.replace(old, new))


@needs_compiler
@pytest.mark.thorough
def test_mutants_are_judged_and_those_accepted_are_compared_with_the_starter():
    total = "for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];"
    chosen = [
        planted("float sum = 0.0f;", "float sum = 0.0f"),  # no semicolon
        planted(total, ""),
        planted("for (; col < n_cols; ++col)", "for (; col < n_cols - 1; ++col)"),
        planted("prefetch(x + col + PREFETCH", "prefetch(x + col"),
        planted(total, total.replace("lane = 0; lane < LANES; ++lane", "lane = LANES - 1; lane >= 0; --lane")),
    ]

    rows = list(judging.judge(STARTER, chosen, device="cpu", progress=lambda line: None, cases=CASES))

    assert [(row["outcome"], row["stage"]) for row in rows] == [
        (Outcome.INVALID, "smoke"),
        (Outcome.CAUGHT, "sweep"),  # 8 columns, in the smoke stage, are all tail
        (Outcome.CAUGHT, "smoke"),
        (Outcome.EQUIVALENT, ""),
        (Outcome.TOLERATED, ""),  # in another order
    ]
    assert "element [" in rows[1]["reason"]
    assert (rows[3]["cases"], rows[3]["changed"]) == (len(CASES), 0)
    assert rows[4]["changed"] > 0 and 0 < rows[4]["error_over_bound"] < 1


@needs_compiler
@pytest.mark.thorough
def test_a_wrong_mutant_that_the_verifier_accepted_would_count_as_missed():
    with Equivalence(ops.get("reduce"), "cpu", STARTER, LIMITS, CASES) as equivalence:
        same = equivalence.compare(STARTER)
        wrong = equivalence.compare(planted("float sum = 0.0f;", "float sum = n_cols > 200;").source)
        crashing = equivalence.compare(STARTER + "\n\ndef kernel_fn(x):\n    raise ValueError\n")

    assert (same.changed, same.error_over_bound) == (0, 0.0)
    assert (wrong.changed, wrong.worst) == (2, "M=5 N=300 float32")
    assert wrong.error_over_bound > 1 > wrong.starter_over_bound
    assert (crashing.changed, crashing.error_over_bound) == (len(CASES), math.inf)
    assert judging.outcome_of_accepted(same) == Outcome.EQUIVALENT
    assert judging.outcome_of_accepted(wrong) == judging.outcome_of_accepted(crashing) == Outcome.MISSED


@needs_compiler
@pytest.mark.thorough
def test_mutants_of_a_starter_that_is_wrong_itself_are_not_judged():
    wrong = planted("for (; col < n_cols; ++col)", "for (; col < n_cols - 1; ++col)")

    with pytest.raises(UsageError, match="the starter of reduce is not accepted on .*smoke"):
        next(judging.judge(wrong.source, [wrong], device="cpu", progress=lambda line: None))


@pytest.mark.gpu
def test_mutants_of_a_cuda_starter_are_judged_on_a_gpu():
    starter = starters.source("reduce", "cuda")
    faults = [
        ("sum += partial[warp];", "sum += partial[warp]"),
        ("if (threadIdx.x == 0) y[blockIdx.x]", "if (threadIdx.x == 1) y[blockIdx.x + 1]"),
        ("float sum = 0.0f;", "float sum = -0.0f;"),
    ]
    chosen = [Mutant("reduce", "cuda", "planted", 1, *fault, starter.replace(*fault)) for fault in faults]

    rows = list(judging.judge(starter, chosen, device="cuda", progress=lambda line: None, cases=CASES))

    assert [row["outcome"] for row in rows] == [Outcome.INVALID, Outcome.CAUGHT, Outcome.EQUIVALENT]


@needs_compiler
@pytest.mark.thorough
def test_a_run_goes_on_where_it_was_stopped(tmp_path, capsys):
    words = ["--operation", "reduce", "--backend", "cpp", "--device", "cpu", "--out", str(tmp_path)]
    file = tmp_path / "mutants.jsonl"

    assert command.main([*words, "--report"]) == 2
    assert command.main([*words, "--sample", "1"]) == 0
    (first,) = judging.read_rows(file)
    file.write_text(file.read_text() + '{"key": "cut o')
    assert command.main([*words, "--sample", "1"]) == 0

    assert judging.read_rows(file) == [first]
    assert first["outcome"] == Outcome.CAUGHT and command.main([*words, "--sample", "1", "--retry"]) == 0
    assert judging.read_rows(file) == [first]  # only accepted ones are judged again
    assert "| reduce (cpp) | 1 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "mutants.json").read_text())["total"]["mutants"] == 1


# Counting


def row(outcome: str, stage: str = "", **others: object) -> judging.Row:
    usual = {"operation": "reduce", "backend": "cpp", "fault": "sign_flipped", "harness": "h", "device": "cpu"}
    found = {"line": 3, "before": "a", "after": "b", "cases": 9, "changed": 2, "worst": "N=1", "status": "fail"}
    errors = {"error_over_bound": 0.5, "starter_over_bound": 0.25}
    return {**usual, **found, **errors, "outcome": outcome, "stage": stage, **others}


def test_the_share_leaves_out_what_does_not_compile_and_what_changes_nothing():
    rows = [
        *[row(Outcome.CAUGHT, "smoke")] * 5,
        row(Outcome.CAUGHT, "edge", status="crash"),
        row(Outcome.INVALID, "smoke"),
        *[row(Outcome.EQUIVALENT)] * 3,
        row(Outcome.TOLERATED),
        row(Outcome.MISSED, operation="softmax", error_over_bound=7.0),
    ]

    figures = report.summary(rows)

    total = figures["total"]
    assert (total["mutants"], total["invalid"], total["equivalent"]) == (12, 1, 3)
    assert (total["caught"], total["crashed"], total["stages"]["smoke"], total["stages"]["edge"]) == (6, 1, 5, 1)
    assert total["share"] == 6 / 8
    assert total["share_of_wrong"] == 6 / 7
    assert [one["missed"] for one in figures["starters"]] == [0, 1]
    assert len(figures["survivors"]) == 2
    text = report.tables(rows)
    assert "| all | 12 | 1 | 3 | 5 | 0 | 0 | 0 | 1 | 0 | 6 | 1 | 1 | 1 | 75.0 % | 85.7 % |" in text
    assert "softmax (cpp), line 3, sign_flipped: `a` -> `b`: missed; 2 of 9 outputs differ" in text
