"""The gauntlet: kernel files of known worth, judged by the real judge.

A bad kernel must be rejected, and for its true cause; a good one must be accepted.  ``index.tsv``
says what each file does and what ought to catch it; `CAUSES` below names the finding or the stage
that this judge gives as its cause.
"""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet

from autokernel.evaluator import Evaluator
from autokernel.verdict import Verdict
from tests.evaluating import LIMITS, brief_evaluator

HERE = Path(__file__).parent
CANARY = "canary-5d1f0c"
RUNNERS = min(4, os.cpu_count() or 1)  # Triton's interpreter keeps one core busy
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = pytest.mark.slow

# Where more than one cause is true, any of them will do.  Files not named here may fail any stage on values.
CAUSES = {
    "a_inplace_rotary": {"input_mutated"},
    "a_oob_store_reduce": {"out_of_bounds_write"},
    "a_shifts_logits_cross_entropy": {"input_mutated"},
    "a_zero_inputs_matmul": {"input_mutated"},
    "c_agreeable_subclass_rotary": {"tensor_subclass"},
    "c_frame_peek_reference_attention": {"stack_inspection"},
    "c_nan_wildcard_matmul": {"smoke"},
    "c_patch_allclose_softmax": {"patched_function"},
    "c_patch_assert_close_reduce": {"patched_function"},
    "c_patch_input_generator_layernorm": {"patched_function"},
    "c_reseed_rng_reduce": {"changed_random_state"},
    "f_cpp_calls_library_matmul": {"library_call"},
    "f_decoy_kernel_matmul": {"library_call"},
    "f_host_numpy_cross_entropy": {"host_computation"},
    "f_torch_compile_rmsnorm": {"library_call"},
    "f_try_except_fallback_softmax": {"library_call"},
    "i_ce_denominator_only": {"stability", "sweep"},
    "i_reduce_drops_tail": {"smoke", "sweep", "edge"},
    "n_cross_entropy_no_max": {"stability"},
    "n_layernorm_onepass_variance": {"stability"},
    "n_mlp_sigmoid_fp16_exp": {"smoke", "sweep", "stability"},
    "n_online_softmax_masked_head": {"stability"},
    "r_disk_replay_cross_entropy": {"file_written", "file_changed"},
    "r_shared_output_buffer_layernorm": {"output_overwritten"},
    "r_stale_weight_cache_mlp": {"determinism", "sweep", "stability"},
    "t_drift_after_ten_calls_layernorm": {"sweep", "stability", "determinism"},
    "t_lazy_instance_override_reduce": {"instance_attributes"},
    "t_patch_do_bench_softmax": {"patched_function"},
    "t_patch_event_elapsed_rmsnorm": {"patched_function"},
    "t_patch_perf_counter_layernorm": {"patched_function"},
    "t_patch_synchronize_matmul": {"patched_function"},
    "x_busy_loop_import_reduce": {"import"},
    "x_memory_leak_softmax": {"memory_leak"},
    "x_orphan_child_rmsnorm": {"process_started", "process_left"},
    "x_os_exit_zero_matmul": {"smoke"},
    "x_sys_exit_import_layernorm": {"import"},
    "x_writes_outside_folder_reduce": {"file_written"},
}


def _rows() -> list[dict[str, str]]:
    with open(HERE / "index.tsv", newline="") as handle:
        return sorted(csv.DictReader(handle, delimiter="\t"), key=lambda row: (row["kernel_type"], row["file"]))


ROWS = _rows()


@pytest.fixture(scope="module")
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    """One evaluator per operation; the secret is in the judge's environment before it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAUNTLET_CANARY_API_KEY", CANARY)
        # An extension that is built through torch's headers takes half a minute.
        limits = dataclasses.replace(LIMITS, call_seconds=150.0)
        with brief_evaluator(request.param, device=DEVICE, limits=limits, runners=RUNNERS) as evaluator:
            yield evaluator


def causes(verdict: Verdict) -> set[str]:
    """All that a verdict says against a candidate: kinds of findings, stages and the import."""
    named = {finding.kind for finding in verdict.findings}
    if verdict.error:
        named.add("import")
    elif verdict.failed_stage is not None:
        named.add(verdict.failed_stage.value)
    return named


def _parameters(row: dict[str, str]) -> ParameterSet:
    """What is slow in Triton's interpreter, above all products of matrices, is for ``make test-thorough``."""
    slow = ("matmul", "fused_mlp", "flash_attention", "rotary_embedding")
    marks = [pytest.mark.thorough] if row["kernel_type"] in slow else []
    return pytest.param(row["kernel_type"], row, id=row["file"].removesuffix(".py"), marks=marks)


@pytest.mark.parametrize(
    ("evaluator", "row"),
    list(map(_parameters, ROWS)),
    indirect=["evaluator"],
)
def test_each_file_gets_its_verdict_and_a_bad_one_its_true_cause(evaluator, row):
    if row["needs_gpu"] == "yes" and DEVICE == "cpu":
        pytest.skip(f"{row['file']} shows its trait on a GPU only")
    name = Path(row["file"]).stem

    verdict = evaluator.verify((HERE / row["file"]).read_text())

    if row["verdict"] == "accept":
        assert verdict.accepted, verdict.reason
        assert not verdict.skipped or any(case.status.value == "pass" for s in verdict.stages for case in s.cases)
    elif row["verdict"] == "reject":
        assert not verdict.accepted, row["what"]
        assert verdict.reason
        found = causes(verdict)
        assert found & CAUSES.get(name, {"smoke", "sweep", "stability", "determinism", "edge"}), (found, verdict.reason)
    assert CANARY not in str(verdict.to_dict())


def test_every_kind_of_the_index_is_among_the_files():
    files = {f"{folder}/{file.name}" for folder in ("bad", "good") for file in (HERE / folder).glob("*.py")}

    assert files == {row["file"] for row in ROWS}
    assert set(CAUSES) <= {Path(row["file"]).stem for row in ROWS}
