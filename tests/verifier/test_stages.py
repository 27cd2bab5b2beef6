"""Each stage catches what it is for: faults planted in kernels that are otherwise right."""

from __future__ import annotations

import re

import pytest

from autokernel import ops
from autokernel.verdict import Stage, Status, Verdict
from autokernel.verifier.plan import plan
from tests.evaluating import shared_evaluator
from tests.planting import changed, needs_compiler, right, wrapped

pytestmark = needs_compiler

ELEMENT = re.compile(
    r"element \[[\d, ]*\] is \S+, expected \S+ within \S+ \(\S+ times the bound\); \d+ of \d+ elements"
)


def judged(name: str, source: str, stages: list[Stage] | None = None) -> Verdict:
    return shared_evaluator(name).verify(source, seed=20, stages=stages)


def passed_before(verdict: Verdict, stage: Stage) -> bool:
    """Whether ``stage`` is the last that was reached and all before it passed."""
    reached = [result.name for result in verdict.stages]
    earlier = [result.status for result in verdict.stages[:-1]]
    return reached == list(Stage)[: len(reached)] and reached[-1] is stage and set(earlier) <= {Status.PASS}


@pytest.mark.parametrize("name", ["rmsnorm", "softmax", "layernorm"])
def test_a_right_kernel_passes_every_stage_on_every_case(name):
    verdict = judged(name, right(name))

    assert verdict.accepted, verdict.reason
    assert [(stage.name, stage.status) for stage in verdict.stages] == [(stage, Status.PASS) for stage in Stage]
    assert verdict.skipped == ()
    assert all(case.error_over_bound <= 1 for stage in verdict.stages for case in stage.cases if case.elements)
    assert verdict.details["seed"] == 20


def test_the_smoke_stage_catches_a_kernel_that_is_wrong_everywhere():
    verdict = judged("rmsnorm", changed("rmsnorm", (" * to_float(weight[col])", "")))

    assert (verdict.failed_stage, verdict.findings) == (Stage.SMOKE, ())
    assert len(verdict.stages) == 1
    assert ELEMENT.search(verdict.reason), verdict.reason


def test_the_smoke_stage_catches_a_sum_over_memory_that_was_never_cleared():
    verdict = judged(
        "rmsnorm", changed("rmsnorm", ("y[col] = from_float<T>(", "y[col] = from_float<T>(0 * to_float(y[col]) + "))
    )

    assert verdict.failed_stage is Stage.SMOKE
    assert "is nan, expected" in verdict.reason


SWEEP = {
    "a dtype": changed(
        "rmsnorm",
        (
            "* scale * to_float(weight[col])",
            "* scale * (std::is_same<T, bfloat16>::value ? 1.0f : to_float(weight[col]))",
        ),
    ),
    "an option": changed("rmsnorm", ("n_cols, eps)\n    return y", "n_cols, 1e-6)\n    return y")),
    "a row stride": wrapped(
        "rmsnorm",
        """
        x, *rest = inputs
        return right(torch.as_strided(x, x.shape, torch.empty(x.shape).stride()), *rest, **options)
        """,
    ),
    "a column stride": wrapped(
        "rmsnorm",
        """
        x, *rest = inputs
        return right(torch.as_strided(x, x.shape, (*x.stride()[:-1], 1)), *rest, **options)
        """,
    ),
    "a broadcast row": wrapped(
        "rmsnorm",
        """
        x, *rest = inputs
        y = right(x, *rest, **options)
        return y.zero_() if x.stride(0) == 0 else y
        """,
    ),
    "a large row": changed("rmsnorm", ("rms_norm_row((const", "if (n_cols < 50000) rms_norm_row((const")),
}


@pytest.mark.parametrize("fault", SWEEP)
def test_only_the_sweep_catches_a_fault_in(fault):
    verdict = judged("rmsnorm", SWEEP[fault])

    assert passed_before(verdict, Stage.SWEEP), verdict.reason
    assert verdict.failed_stage is Stage.SWEEP
    assert ELEMENT.search(verdict.reason), verdict.reason
    words = {"a dtype": "bfloat16", "an option": "eps=0.01", "a row stride": "padded", "a column stride": "strided"}
    words |= {"a broadcast row": "broadcast", "a large row": "N=50257"}
    assert words[fault] in verdict.reason


STABILITY = {
    "no maximum": ("softmax", changed("softmax", ("to_float(x[col]) - largest", "to_float(x[col])"))),
    "one-pass variance": (
        "layernorm",
        changed(
            "layernorm",
            ("const float centred = to_float(x[col]) - mean;", "const float centred = to_float(x[col]);"),
            ("std::sqrt(squares / n_cols + eps)", "std::sqrt(std::max(squares / n_cols - mean * mean, 0.0f) + eps)"),
        ),
    ),
}


@pytest.mark.parametrize("fault", STABILITY)
def test_only_the_stability_stage_catches(fault):
    name, source = STABILITY[fault]

    verdict = judged(name, source)
    without = judged(name, source, [stage for stage in Stage if stage is not Stage.STABILITY])

    assert passed_before(verdict, Stage.STABILITY), verdict.reason
    assert ELEMENT.search(verdict.reason), verdict.reason
    assert without.accepted, without.reason


def calls_before(stage: Stage) -> int:
    """How many calls a kernel of rmsnorm gets before ``stage``."""
    return sum(
        len(cases)
        for earlier, cases in plan(ops.get("rmsnorm"), dtype="float32").items()
        if list(Stage).index(earlier) < list(Stage).index(stage)
    )


DETERMINISM = {
    "a random last bit": (
        changed(
            "rmsnorm",
            ("template <typename Term>", "#include <random>\ntemplate <typename Term>"),
            (
                "from_float<T>(to_float(x[col]) * scale * to_float(weight[col]))",
                "from_float<T>(to_float(x[col]) * scale * to_float(weight[col])"
                " * (col == 0 && std::random_device{}() % 2 ? 1.0000002f : 1.0f))",
            ),
        ),
        "run [23] on equal inputs differs from run 1 in",
    ),
    "results kept by the tensor's identity": (
        wrapped(
            "rmsnorm",
            """
            kept = known.get(id(inputs[0]))
            if kept is not None and kept[0]() is inputs[0] and kept[1] == options:
                return kept[2].clone()
            y = right(*inputs, **options)
            known[id(inputs[0])] = (weakref.ref(inputs[0]), options, y.clone())
            return y
            """,
            "import weakref\nknown = {}",
        ),
        "after .* changed in place: element",
    ),
    "results kept by the first and last elements": (
        wrapped(
            "rmsnorm",
            """
            x, weight = (value.reshape(-1) for value in inputs)
            ends = [x[:3], x[-3:], weight[:3], weight[-3:]]
            key = (inputs[0].shape, str(x.dtype), str(options), *(tuple(end.tolist()) for end in ends))
            if key not in known:
                known[key] = right(*inputs, **options).clone()
            return known[key].clone()
            """,
            "known = {}",
        ),
        "after .* changed in place: element",
    ),
    "a result that is kept once enough calls were made": (
        wrapped(
            "rmsnorm",
            f"""
            global count, last
            count += 1
            if count > {calls_before(Stage.DETERMINISM) + 8} and last is not None and last.shape == inputs[0].shape:
                return last.clone()
            last = right(*inputs, **options)
            return last
            """,
            "count, last = 0, None",
        ),
        "after .* changed in place: element",
    ),
}


@pytest.mark.parametrize("fault", DETERMINISM)
def test_only_the_determinism_stage_catches(fault):
    source, message = DETERMINISM[fault]

    verdict = judged("rmsnorm", source)

    assert passed_before(verdict, Stage.DETERMINISM), verdict.reason
    assert verdict.failed_stage is Stage.DETERMINISM
    assert re.search(message, verdict.reason), verdict.reason


LASTING = {
    "output_overwritten": wrapped(
        "rmsnorm",
        """
        key = (inputs[0].shape, inputs[0].dtype)
        buffers.setdefault(key, torch.empty(key[0], dtype=key[1])).copy_(right(*inputs, **options))
        return buffers[key]
        """,
        "buffers = {}",
    ),
    "memory_leak": wrapped(
        "rmsnorm", "kept.append(torch.empty(4 << 20).fill_(1))\nreturn right(*inputs, **options)", "kept = []"
    ),
}


@pytest.mark.parametrize("kind", LASTING)
def test_only_the_determinism_stage_finds(kind):
    verdict = judged("rmsnorm", LASTING[kind])
    without = judged("rmsnorm", LASTING[kind], [stage for stage in Stage if stage is not Stage.DETERMINISM])

    assert not verdict.accepted
    assert verdict.failed_stage is None, verdict.reason
    assert [finding.kind for finding in verdict.findings] == [kind]
    assert verdict.stages[-1].name is Stage.DETERMINISM
    assert without.accepted, without.reason


EDGE = {
    "a dropped tail": changed(
        "rmsnorm",
        (
            "for (int64_t col = 0; col < n_cols; ++col)\n",
            "for (int64_t col = 0; col < (n_cols < 4096 ? n_cols / 4 * 4 : n_cols); ++col)\n",
        ),
    ),
    "more than two dimensions": changed("rmsnorm", ("x.numel() // n_cols", "x.shape[0]")),
    "a single row": changed("rmsnorm", ("row < end", "row < (n_rows == 1 ? 0 : end)")),
}


@pytest.mark.parametrize("fault", EDGE)
def test_only_the_edge_stage_catches(fault):
    spec = ops.get("rmsnorm")
    assert all(shape["N"] % 4 == 0 or shape["N"] > 4096 for shape in (*spec.shapes, *spec.large_shapes))

    verdict = judged("rmsnorm", EDGE[fault])
    without = judged("rmsnorm", EDGE[fault], [stage for stage in Stage if stage is not Stage.EDGE])

    assert passed_before(verdict, Stage.EDGE), verdict.reason
    assert verdict.failed_stage is Stage.EDGE
    assert ELEMENT.search(verdict.reason), verdict.reason
    assert without.accepted, without.reason


def test_a_dtype_the_kernel_refuses_is_a_crash_that_names_the_line():
    source = wrapped(
        "rmsnorm", "assert inputs[0].dtype is not torch.bfloat16, 'no bfloat16'\nreturn right(*inputs, **options)"
    )

    verdict = judged("rmsnorm", source)

    assert (verdict.failed_stage, verdict.correctness) == (Stage.SWEEP, "CRASH")
    assert re.search(r"AssertionError: no bfloat16 \(kernel.py line \d+: assert inputs\[0\]", verdict.reason)


def test_the_stages_tell_of_each_case_as_it_is_judged():
    told = []
    evaluator = shared_evaluator("rmsnorm")
    evaluator._progress = told.append
    try:
        verdict = evaluator.verify(right("rmsnorm"), stages=[Stage.SMOKE, Stage.EDGE])
    finally:
        evaluator._progress = None

    assert [(event["stage"], event["case"]) for event in told] == [
        (stage.name.value, case.label) for stage in verdict.stages for case in stage.cases
    ]
