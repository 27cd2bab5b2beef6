"""The evaluator: a verdict, a measurement beside the rivals, a confirmation; and no leak over many candidates."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autokernel.errors import InvalidSpec, UnknownOperation, UsageError
from autokernel.evaluator import Evaluation, Evaluator, device_lock
from autokernel.hardware import detect
from autokernel.ops.spec import TimingCase
from autokernel.verdict import Stage, Status
from tests.evaluating import settings, shared_evaluator
from tests.planting import changed, needs_compiler, right, wrapped

RMSNORM = right("rmsnorm")
CASE = TimingCase(shape={"M": 64, "N": 1024}, dtype="float32")
SMOKE = [Stage.SMOKE]


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    """Times on a small case, so that a test takes a second."""
    with Evaluator("rmsnorm", device="cpu", timing_cases=[CASE], settings=settings()) as evaluator:
        yield evaluator


def slower(times: int) -> str:
    """rmsnorm that does its work several times over."""
    return wrapped("rmsnorm", f"for _ in range({times}):\n    y = right(*inputs, **options)\nreturn y")


@needs_compiler
def test_a_right_kernel_gets_a_verdict_and_a_time_beside_pytorchs(evaluator):
    evaluation = evaluator.evaluate(RMSNORM, seed=3)

    assert evaluation.verdict.accepted, evaluation.verdict.reason
    measurement = evaluation.measurement
    assert measurement is not None
    (case,) = measurement.cases
    assert (case.label, case.method) == ("M=64 N=1024 float32", "wall")
    assert set(case.contestants) == {"candidate", "pytorch"}
    assert set(measurement.speedups) == {"pytorch"}
    ratio = measurement.speedups["pytorch"]
    medians = {name: contestant.latency_us for name, contestant in case.contestants.items()}
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.value == pytest.approx(medians["pytorch"] / medians["candidate"], rel=0.3)
    assert len(case.contestants["candidate"].samples_us) == len(case.contestants["pytorch"].samples_us) >= 32
    assert case.gb_per_s == pytest.approx(4 * (2 * 64 * 1024 + 1024) / medians["candidate"] / 1e3)
    assert evaluation.confirmation is None, "there is no incumbent to beat"
    assert evaluation.seconds >= evaluation.verdict.seconds + measurement.seconds


@needs_compiler
def test_a_kernel_that_beats_the_incumbent_is_timed_again_in_a_new_process(evaluator):
    evaluation = evaluator.evaluate(RMSNORM, incumbent=slower(4))

    assert evaluation.verdict.accepted, evaluation.verdict.reason
    assert evaluation.measurement is not None
    assert evaluation.confirmation is not None
    for measurement in (evaluation.measurement, evaluation.confirmation):
        assert set(measurement.speedups) == {"incumbent", "pytorch"}
        assert 2.5 < measurement.speedups["incumbent"].low < 6
    assert evaluation.measurement.cases[0].contestants != evaluation.confirmation.cases[0].contestants


@needs_compiler
def test_a_kernel_that_loses_to_the_incumbent_is_not_timed_again(evaluator):
    evaluation = evaluator.evaluate(slower(4), incumbent=RMSNORM)

    assert evaluation.verdict.accepted, evaluation.verdict.reason
    assert evaluation.measurement is not None
    assert evaluation.measurement.speedups["incumbent"].high < 0.5
    assert evaluation.measurement.worst_case[1] == evaluation.measurement.cases[0].speedups["incumbent"]
    assert evaluation.confirmation is None


@needs_compiler
def test_a_rejected_kernel_is_not_timed(evaluator):
    evaluation = evaluator.evaluate(changed("rmsnorm", (" * to_float(weight[col])", "")))

    assert not evaluation.verdict.accepted
    assert evaluation.measurement is None


@needs_compiler
def test_several_timing_cases_are_weighted(tmp_path):
    cases = [
        TimingCase(shape={"M": 16, "N": 512}, dtype="float32", weight=3.0),
        TimingCase(shape={"M": 8, "N": 300}, dtype="float32", options={"eps": 1e-2}, weight=1.0),
    ]
    with Evaluator("rmsnorm", device="cpu", timing_cases=cases, settings=settings()) as evaluator:
        measurement = evaluator.measure(RMSNORM)

    assert [case.label for case in measurement.cases] == ["M=16 N=512 float32", "M=8 N=300 float32 eps=0.01"]
    assert [case.weight for case in measurement.cases] == [3.0, 1.0]
    parts = [case.speedups["pytorch"].value for case in measurement.cases]
    assert min(parts) <= measurement.speedups["pytorch"].value <= max(parts)


# Calls on the size that is timed, which verification tries once.
ON_TIMED_SIZE = "count += inputs[0].shape == (64, 1024)"
WHEN_TIMED = 90


WRONG_WHEN_TIMED = {
    "a kernel that drifts after many calls": (
        f"{ON_TIMED_SIZE}\nreturn right(*inputs, **options) if count < {WHEN_TIMED} else torch.zeros_like(inputs[0])",
        "count = 0",
        "count",
    ),
    "a kernel that answers from memory once it is timed": (
        """
        x = inputs[0]
        if x.shape != (64, 1024):
            return right(*inputs, **options)
        known.setdefault(id(x), (x, right(*inputs, **options).clone()))
        return known[id(x)][1].clone()
        """,
        "known = {}",
        "",
    ),
    "a kernel that remembers by a fingerprint of the content": (
        """
        x = inputs[0]
        if x.shape != (64, 1024):
            return right(*inputs, **options)
        key = (id(x), tuple(x.view(-1)[::8191].tolist()))
        if key not in known:
            known[key] = (x, right(*inputs, **options).clone())
        return known[key][1].clone()
        """,
        "known = {}",
        "",
    ),
    "a kernel that computes one call in ten": (
        f"""
        {ON_TIMED_SIZE}
        if inputs[0].shape == (64, 1024) and count > {WHEN_TIMED} and count % 10:
            return last
        last = right(*inputs, **options)
        return last.clone()
        """,
        "count, last = 0, None",
        "count, last",
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", WRONG_WHEN_TIMED)
def test_wrong_answers_are_found_inside_the_timing(evaluator, name):
    body, before, changing = WRONG_WHEN_TIMED[name]
    body = (f"global {changing}\n" if changing else "") + textwrap.dedent(body)

    evaluation = evaluator.evaluate(wrapped("rmsnorm", body, before))

    assert all(stage.status is Status.PASS for stage in evaluation.verdict.stages), evaluation.verdict.reason
    assert not evaluation.verdict.accepted
    assert "wrong_when_timed" in {finding.kind for finding in evaluation.verdict.findings}
    assert "a call inside the timing of M=64 N=1024 float32" in evaluation.verdict.reason
    assert "element [" in evaluation.verdict.reason


@needs_compiler
def test_a_clock_that_is_patched_once_the_timing_begins_is_found(evaluator):
    source = wrapped(
        "rmsnorm",
        """
        global count
        count += inputs[0].shape == (64, 1024)
        if count == WHEN_TIMED:
            import time
            real = time.perf_counter
            time.perf_counter = lambda: real() / 100
        return right(*inputs, **options)
        """,
        f"count, WHEN_TIMED = 0, {WHEN_TIMED}",
    )

    evaluation = evaluator.evaluate(source)

    assert not evaluation.verdict.accepted
    assert "patched_function: time.perf_counter was replaced" in evaluation.verdict.reason


@needs_compiler
def test_a_clock_inside_the_runner_that_runs_slow_disagrees_with_the_judges(evaluator):
    source = wrapped(
        "rmsnorm",
        """
        global count
        count += inputs[0].shape == (64, 1024)
        if count == WHEN_TIMED:
            import sys
            timing = sys.modules["autokernel.timing"]
            real = timing._clock
            timing._clock = lambda: real() / 100
        return right(*inputs, **options)
        """,
        f"count, WHEN_TIMED = 0, {WHEN_TIMED}",
    )

    evaluation = evaluator.evaluate(source)

    assert not evaluation.verdict.accepted
    kinds = {finding.kind for finding in evaluation.verdict.findings}
    assert kinds >= {"clock_disagrees", "patched_function"}


@needs_compiler
@pytest.mark.parametrize(
    ("statement", "message"),
    [("raise ValueError('tired')", "ValueError: tired"), ("import os; os._exit(5)", "left with exit status 5")],
)
def test_a_kernel_that_fails_in_the_timing_is_rejected_with_the_reason(evaluator, statement, message):
    body = f"global count\n{ON_TIMED_SIZE}\nif count > {WHEN_TIMED}:\n    {statement}\nreturn right(*inputs, **options)"

    evaluation = evaluator.evaluate(wrapped("rmsnorm", body, "count = 0"))

    assert not evaluation.verdict.accepted
    assert [finding.kind for finding in evaluation.verdict.findings] == ["failed_when_timed"]
    assert message in evaluation.verdict.reason
    assert evaluation.measurement is None
    assert evaluator.evaluate(RMSNORM).verdict.accepted


@needs_compiler
def test_the_same_seed_gives_the_same_inputs_and_so_the_same_reason():
    evaluator = shared_evaluator("rmsnorm")
    wrong = changed("rmsnorm", ("* scale *", "* scale * 1.001f *"))

    first, second, other = (evaluator.verify(wrong, seed=seed, stages=SMOKE) for seed in (5, 5, 6))

    assert first.reason == second.reason != other.reason
    assert first.details["seed"] == 5
    assert (
        evaluator.verify(wrong, stages=SMOKE).details["seed"] != evaluator.verify(wrong, stages=SMOKE).details["seed"]
    )


@needs_compiler
def test_an_incumbent_that_cannot_be_loaded_is_an_error_of_the_call_not_of_the_candidate(evaluator):
    with pytest.raises(UsageError, match="the incumbent cannot be loaded: .*ZeroDivisionError"):
        evaluator.measure(RMSNORM, incumbent="1 / 0")


@needs_compiler
def test_a_kernel_that_cannot_be_measured_says_why(evaluator):
    with pytest.raises(UsageError, match="the candidate cannot be loaded: kernel.py line 1: SyntaxError"):
        evaluator.measure("def")
    with pytest.raises(UsageError, match="cannot be timed: .*ValueError: no"):
        evaluator.measure(wrapped("rmsnorm", "raise ValueError('no')"))


@needs_compiler
def test_two_evaluators_time_one_after_the_other(evaluator):
    spans: dict[str, tuple[float, float]] = {}

    def measure(name: str, one: Evaluator) -> None:
        begin = time.monotonic()
        one.measure(RMSNORM)
        spans[name] = (begin, time.monotonic())

    other = shared_evaluator("rmsnorm")
    threads = [threading.Thread(target=measure, args=pair) for pair in (("a", evaluator), ("b", other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(spans) == {"a", "b"}


def test_one_holder_at_a_time_has_the_devices_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    device = detect("cpu")

    with device_lock(device):
        (file,) = tmp_path.iterdir()
        with open(file) as handle, pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(file) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert file.stat().st_mode & 0o777 == 0o600


SPEC = """
import torch
from autokernel.ops.spec import KernelSpec

def reference(x, scale=2.0):
    return x * scale + 1

def make_inputs(shape, dtype, generator):
    return (torch.randn(shape["N"], generator=generator, device=generator.device).to(dtype),)

SPEC = KernelSpec(name="affine", reference=reference, make_inputs=make_inputs,
                  shapes=({"N": 9}, {"N": 1000}), options=({}, {"scale": 0.5}))
"""
AFFINE = """
import torch
from autokernel.backends import cpp

KERNEL_TYPE, BACKEND = "affine", "cpp"
MODULE = cpp.compile('extern "C" void affine(int dtype, const void* x, void* y, int64_t n, float s) {'
                     'dispatch(dtype, [&](auto zero) { using T = decltype(zero);'
                     'for (int64_t i = 0; i < n; ++i)'
                     '((T*)y)[i] = from_float<T>(to_float(((const T*)x)[i]) * s + 1); });}')
affine = MODULE.function("affine", "dtype", "T*", "T*", "int64", "float32")

def kernel_fn(x, scale=2.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        affine(x.dtype, x, y, x.numel(), scale)
    return y
"""


@needs_compiler
def test_a_users_own_operation_is_judged_and_timed_from_its_file(tmp_path):
    file = tmp_path / "my_op.py"
    file.write_text(SPEC)
    with Evaluator(f"{file}:affine", device="cpu", settings=settings()) as evaluator:
        evaluation = evaluator.evaluate(AFFINE, incumbent=AFFINE)
        wrong = evaluator.verify(AFFINE.replace("* s + 1", "* 2 + 1"))

    assert evaluation.verdict.accepted, evaluation.verdict.reason
    assert [stage.status for stage in evaluation.verdict.stages] == [Status.PASS] * 5
    assert evaluation.measurement is not None
    assert set(evaluation.measurement.speedups) == {"incumbent", "pytorch"}
    assert "scale=0.5" in wrong.reason


def test_what_cannot_be_judged_is_refused_before_any_process_starts(tmp_path):
    with pytest.raises(UnknownOperation, match="no_such_operation"):
        Evaluator("no_such_operation", device="cpu")
    with pytest.raises(UsageError, match="not defined in float8.*float16"):
        Evaluator("rmsnorm", device="cpu", dtype="float8")
    file = tmp_path / "broken.py"
    file.write_text("1 / 0")
    with pytest.raises((UsageError, InvalidSpec), match="ZeroDivisionError"):
        Evaluator(str(file), device="cpu")


TINY = """
import torch
def kernel_fn(x, weight, eps=1e-6):
    return torch.zeros_like(x)
"""


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_judge_holds_no_more_memory_after_thirty_candidates_than_after_five():
    evaluator = shared_evaluator("rmsnorm")

    def judge(times: int) -> None:
        for _ in range(times):
            assert not evaluator.verify(TINY).accepted

    judge(5)
    before, open_files = resident_bytes(), len(os.listdir("/proc/self/fd"))
    judge(25)

    assert resident_bytes() - before < 20 << 20
    assert len(os.listdir("/proc/self/fd")) <= open_files + 2
    assert sum("autokernel-arena" in line for line in Path("/proc/self/maps").read_text().splitlines()) <= 8


@needs_compiler
@pytest.mark.thorough
def test_the_judge_holds_no_more_memory_after_seven_timed_candidates_than_after_two(evaluator):
    def judge(times: int) -> list[Evaluation]:
        return [evaluator.evaluate(RMSNORM, incumbent=RMSNORM, stages=SMOKE) for _ in range(times)]

    judge(2)
    before = resident_bytes()
    judge(5)

    assert resident_bytes() - before < 20 << 20


def test_a_closed_evaluator_can_be_closed_again():
    evaluator = Evaluator("rmsnorm", device="cpu", settings=settings())
    evaluator.close()

    with contextlib.suppress(OSError):
        evaluator.close()
