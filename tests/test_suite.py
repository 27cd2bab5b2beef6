"""The suite: which configurations, who is timed, and what becomes of those that fail; timed for real on the CPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from autokernel import ops, starters, tuned
from autokernel.errors import UnknownOperation, UsageError
from autokernel.suite import Outcome, SuiteSettings, alternatives, bench, configuration, document, ours, select
from autokernel.suite.figure import speedups
from tests.command_line import autokernel
from tests.evaluating import LIMITS

BRIEF = SuiteSettings(seconds=0.05, compiled=False, roofline=False, limits=LIMITS)
SMALL = configuration("rmsnorm", {"M": 16, "N": 127}, "float32")
LIBRARY = """
import os
import torch

class LigerRMSNormFunction:
    @staticmethod
    def apply(x, weight, eps, *rest):
        {body}
"""


@pytest.fixture
def liger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package of that name which does what a test says."""

    def install(body: str) -> None:
        folder = tmp_path / "site-packages" / "liger_kernel" / "ops"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder.parent / "__init__.py").touch()
        (folder / "rms_norm.py").write_text(LIBRARY.format(body=body))
        monkeypatch.syspath_prepend(tmp_path / "site-packages")

    yield install
    for name in [name for name in sys.modules if name.partition(".")[0] == "liger_kernel"]:
        del sys.modules[name]


def the_outcome(settings: SuiteSettings = BRIEF) -> Outcome:
    (outcome,) = bench([SMALL], device="cpu", settings=settings)
    return outcome


@pytest.fixture(scope="module")
def measured() -> Outcome:
    return the_outcome()


# Configurations


def test_the_suite_for_a_gpu_has_every_operation_over_at_least_twenty_configurations():
    chosen = select(gpu=True)

    assert {one.operation for one in chosen} == set(ops.names())
    assert len(chosen) == len({one.label for one in chosen}) >= 40
    labels = "\n".join(one.label for one in chosen)
    for wanted in (
        "softmax M=4096 N=50257 bfloat16",
        "cross_entropy N=8192 V=128256 bfloat16",
        "matmul M=8192 N=50257 K=768 bfloat16 transposed:1",
        "rmsnorm M=4096 N=4096 float32",
        "flash_attention B=1 H=32 S=4096 D=128 bfloat16",
    ):
        assert wanted in labels


def test_configurations_of_one_operation_and_dtype_stand_together():
    groups = [(one.operation, one.case.dtype) for one in select(gpu=True)]
    starts = [group for index, group in enumerate(groups) if index == 0 or groups[index - 1] != group]
    assert len(starts) == len(set(starts))


def test_sizes_that_are_given_go_to_the_operations_that_take_them():
    chosen = select(gpu=True, operations=["softmax", "matmul"], dtypes=["float16"], shapes=[{"M": 8, "N": 16}])
    assert [one.label for one in chosen] == ["softmax M=8 N=16 float16"]

    with pytest.raises(UsageError, match="the sizes Q=8 fit none of the operations: softmax takes M, N"):
        select(gpu=True, operations=["softmax"], shapes=[{"Q": 8}])
    with pytest.raises(UnknownOperation):
        select(gpu=True, operations=["softmin"])


def test_on_a_cpu_the_sizes_are_those_that_the_specs_list_for_it():
    labels = [one.label for one in select(gpu=False, operations=["reduce"])]
    expected = ops.get("reduce").cpu_timing_shapes
    assert labels == [f"reduce M={one['M']} N={one['N']} float32" for one in expected]


# Contestants


def test_ours_is_the_tuned_kernel_where_there_is_one_and_else_the_starter():
    first, second = ours("softmax", ("triton", "cuda"))
    assert (first.name, first.source) == ("candidate", tuned.source("softmax", "triton"))
    assert (second.name, second.source) == ("cuda", tuned.source("softmax", "cuda"))

    (only,) = ours("softmax", ("cpp",))
    assert only.source == starters.source("softmax", "cpp")
    with pytest.raises(UsageError, match="no kernel of softmax for metal"):
        ours("softmax", ("metal",))


def test_alternatives_name_the_libraries_that_are_not_installed():
    found, absent = alternatives("softmax", compiled=True)

    assert [one.name for one in found][:2] == ["pytorch", "compile"]
    for name in ("liger", "quack"):
        assert name in absent or name in [one.name for one in found]
    assert alternatives("softmax", libraries=False)[1] == {}


# Running


def test_a_configuration_is_verified_and_timed_beside_the_alternatives(measured):
    outcome = measured
    assert outcome.status == "measured", outcome.reason
    assert set(outcome.latency_us) >= {"candidate", "pytorch", "composed"}
    assert all(time > 0 for time in (*outcome.latency_us.values(), *outcome.call_us.values()))
    assert outcome.inaccurate == {}
    assert outcome.method == "wall"
    name, ratio = outcome.best_alternative
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio == min((outcome.speedups[one] for one in ("pytorch", "composed")), key=lambda one: one.value)
    assert name in ("pytorch", "composed")


def test_a_wrong_kernel_is_rejected_and_the_next_configuration_goes_on():
    wrong = 'import torch\nKERNEL_TYPE = "rmsnorm"\nBACKEND = "cpp"\n\n\ndef kernel_fn(x, weight, eps=1e-6):\n'
    settings = SuiteSettings(
        seconds=0.05, compiled=False, roofline=False, limits=LIMITS,
        kernels={"rmsnorm": wrong + "    return torch.empty_like(x)\n"},
    )  # fmt: skip
    first, second = bench(
        [SMALL, configuration("reduce", {"M": 8, "N": 65}, "float32")], device="cpu", settings=settings
    )

    assert first.status == "rejected"
    assert "M=" in first.reason
    assert first.latency_us == {}
    assert second.status == "measured", second.reason


def test_a_library_that_computes_something_else_is_timed_and_marked(liger):
    liger("return torch.zeros_like(x)")
    outcome = the_outcome()

    assert outcome.status == "measured", outcome.reason
    assert "liger" in outcome.latency_us
    assert "of 2032 elements" in outcome.inaccurate["liger"] or "got 0" in outcome.inaccurate["liger"]
    assert outcome.best_alternative[0] != "liger"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param("raise RuntimeError('rows too short')", "rows too short", marks=pytest.mark.thorough),
        ("os._exit(3)", "exit status 3"),
        pytest.param("return None", "no tensor", marks=pytest.mark.thorough),
    ],
)
def test_a_library_that_fails_is_left_out_and_the_others_are_timed(liger, body, why):
    liger(body)
    outcome = the_outcome()

    assert outcome.status == "measured", outcome.reason
    assert why in outcome.absent["liger"]
    assert {"candidate", "pytorch", "composed"} <= set(outcome.latency_us)


def test_outcomes_are_written_as_json_and_drawn(measured):
    from autokernel.hardware import detect

    outcome = measured
    failed = Outcome(operation="softmax", label="M=1 N=1", status="failed", reason="<b>out of memory</b>")

    written = json.loads(json.dumps(document([outcome, failed], detect("cpu"))))
    assert [one["status"] for one in written["outcomes"]] == ["measured", "failed"]
    assert written["outcomes"][0]["best_alternative"]["speedup"]["value"] > 0
    assert "torch" in written["versions"]
    traces = {trace.name: list(trace.y) for trace in speedups([outcome, failed]).data}
    assert traces["pytorch"] == [f"rmsnorm {outcome.label}"]


# Command line


def test_bench_suite_prints_a_table_and_writes_json(tmp_path):
    file, figure = tmp_path / "out.json", tmp_path / "out.html"
    result = autokernel(
        "bench-suite", "--op", "reduce", "--config", "M=8,N=65", "--device", "cpu", "--no-compile", "--seconds", "0.05",
        "--json", file, "--figure", figure,
    )  # fmt: skip

    assert result.returncode == 0, result.stderr
    assert "reduce M=8 N=65 float32" in result.stdout
    assert json.loads(file.read_text())["outcomes"][0]["status"] == "measured"
    assert "reduce M=8 N=65 float32" in figure.read_text()


def test_bench_suite_lists_configurations_without_timing():
    result = autokernel("bench-suite", "--list", "--device", "cpu", "--op", "softmax", "--dtype", "float16")
    expected = ops.get("softmax").cpu_timing_shapes
    assert result.stdout.splitlines() == [f"softmax M={one['M']} N={one['N']} float16" for one in expected]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "softmin"], "unknown operation 'softmin'"),
        (["--config", "M=8,Q=9"], "fit none of the operations"),
        (["--verify", "never"], "is none of brief, full, values"),
        (["--kernel", "/no/such/kernel.py"], "does not exist"),
        (["--op", "softmax", "--dtype", "float64"], "'float64' is none of float16, bfloat16, float32"),
    ],
)
def test_bench_suite_says_what_is_wrong_with_its_arguments(arguments, message):
    result = autokernel("bench-suite", "--device", "cpu", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
