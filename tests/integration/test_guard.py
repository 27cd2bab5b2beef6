"""Which kernels are loaded, and which calls they may take: only what a recorded verdict covers."""

from __future__ import annotations

import asyncio

import pytest
import torch
from torch import nn

import autokernel as ak
from autokernel import ops
from autokernel.campaign_plan import CampaignPlan
from autokernel.errors import UsageError
from autokernel.evaluator import Evaluator
from autokernel.integration import integration_of
from autokernel.integration.evidence import Evidence, folded
from autokernel.integration.kernels import find_kernels
from autokernel.ops import TimingCase
from autokernel.runfolder import RunFolder
from autokernel.session import Session
from autokernel.verdict import CaseResult, Stage, StageResult, Status, Verdict
from autokernel.verifier.layouts import lay_out, name_of
from tests.evaluating import settings
from tests.integration import models
from tests.integration.kernels import needs_compiler, starter

ROWS = 18  # of models.ids(): 2 x 9


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    """A run of rmsnorm that has judged and kept its baseline, timed on the test model's own sizes."""
    shape = {"M": ROWS, "N": models.WIDTH}
    cases = [TimingCase(shape=shape, dtype="float32")]
    evaluator = Evaluator("rmsnorm", device="cpu", timing_cases=cases, settings=settings())
    root = tmp_path_factory.mktemp("runs")
    with Session.create("rmsnorm", device="cpu", shapes=[shape], root=root, evaluator=evaluator) as session:
        baseline = asyncio.run(session.step())
    assert baseline.correctness == "PASS"
    return RunFolder(session.path)


def calls(model) -> tuple[int, dict[str, int]]:
    report = integration_of(model).report()
    reasons: dict[str, int] = {}
    for place in report.places:
        for why, count in place.original_calls.items():
            reasons[why] = reasons.get(why, 0) + count
    return report.kernel_calls, reasons


@needs_compiler
@torch.no_grad()
def test_a_runs_kept_kernel_takes_the_calls_that_were_verified_and_no_others(run):
    fast = ak.integrate(models.llama(), run, (models.ids(),))
    fast(models.ids())
    assert calls(fast) == (5, {})

    fast(models.ids(2, 8))
    assert calls(fast) == (5, {"M=16 N=32 float32 was not verified": 5})
    fast.to(torch.bfloat16)(models.ids())
    assert calls(fast)[0] == 5
    assert calls(fast)[1]["M=18 N=32 bfloat16 was not verified"] == 5


@needs_compiler
@torch.no_grad()
def test_sizes_between_verified_ones_are_taken_when_that_is_asked_for(run):
    fast = ak.integrate(models.llama(), run.path, (models.ids(),), admit="range")
    fast(models.ids(2, 8))
    assert calls(fast) == (5, {})
    sizes = folded({"M": 10**9, "N": 32})
    evidence = integration_of(fast).kernels[0].evidence
    assert "was not verified" in evidence.objection(sizes, "float32", (("eps", 1e-5),), ranges=True)


@needs_compiler
@torch.no_grad()
def test_a_form_that_was_checked_on_the_models_own_input_is_taken_when_that_is_asked_for(run):
    other = models.ids(1, 5)
    fast = ak.integrate(models.llama(), run, (other,))
    fast(other)
    assert calls(fast)[0] == 0

    fast = ak.integrate(models.llama(), run, (other,), admit="checked")
    fast(other)
    fast(models.ids(1, 6))
    assert calls(fast) == (5, {"M=6 N=32 float32 was not verified": 5})


@needs_compiler
def test_a_check_in_which_the_guard_refused_every_call_proves_nothing_and_says_why(run):
    fast = ak.integrate(models.llama(), run, (models.ids(2, 8),))
    check = ak.check_model(fast, (models.ids(2, 8),))

    assert (check.ok, check.proven, check.timing) == (False, False, None)
    assert all("compared with itself" in one.untested for one in check.inputs)
    (gap,) = check.report.gaps
    assert gap.seen == ("M=16 N=32 float32",)
    assert gap.nearest[0] == "M=18 N=32 float32"
    for words in (
        "nothing is proven",
        "the model calls rmsnorm with M=16 N=32 float32",
        "verified, the nearest: M=18 N=32 float32",
        "autokernel new rmsnorm --dtype float32 --shape M=16,N=32",
        "--admit checked",
    ):
        assert words in check.reason, check.reason
    fast.restore()

    fast = ak.integrate(models.llama(), run, (models.ids(2, 8),), admit="checked")
    check = ak.check_model(fast, (models.ids(2, 8),), timed=False)
    assert (check.ok, check.proven, check.report.gaps) == (True, True, ())
    fast.restore()


@needs_compiler
@torch.no_grad()
def test_torch_compile_asks_the_same_guard(run):
    torch._dynamo.reset()
    fast = ak.integrate(models.llama(layers=1), run, (models.ids(),))
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    compiled(models.ids())
    assert calls(fast)[0] == 3
    expected = models.llama(layers=1)(models.ids(3, 4)).logits

    torch.testing.assert_close(compiled(models.ids(3, 4)).logits, expected, rtol=1e-5, atol=1e-5)
    assert calls(fast)[0] == 3


@needs_compiler
@torch.no_grad()
def test_an_eps_outside_of_what_was_verified_is_the_originals(run):
    torch.manual_seed(0)
    x = torch.randn(ROWS, models.WIDTH)
    for eps, taken in ((1e-4, 1), (1e-9, 1), (0.5, 0), (1e-13, 0)):
        model = nn.Sequential(nn.RMSNorm(models.WIDTH, eps=eps))
        fast = ak.integrate(model, run, (x,))
        fast(x)
        assert calls(fast)[0] == taken, eps


@needs_compiler
@torch.no_grad()
def test_a_layout_that_was_verified_is_passed_on_and_another_is_copied(run):
    (kernel,) = find_kernels(run)
    seen = []
    spy = ak.integrate(nn.Sequential(nn.RMSNorm(models.WIDTH, eps=1e-5)), kernel, (torch.randn(ROWS, models.WIDTH),))
    object.__setattr__(kernel, "function", lambda x, weight, eps: seen.append(x.stride()) or x.clone())
    wide = torch.randn(ROWS, 2 * models.WIDTH)
    spy(wide[:, : models.WIDTH])  # rows further apart than they are long
    spy(torch.randn(models.WIDTH, ROWS).t())
    spy(wide.as_strided((ROWS, models.WIDTH), (1, 2)))  # rows that overlap: nobody verified that

    assert "padded" in kernel.evidence.layouts
    assert seen == [(2 * models.WIDTH, 1), (1, ROWS), (models.WIDTH, 1)]


def test_layouts_are_told_apart_as_the_verifier_makes_them():
    def _layout(value):
        return name_of(value.shape, value.stride())

    x = torch.randn(2, 3, 5, 4)
    for name in ("padded", "transposed"):
        assert _layout(lay_out((x,), name, [0])[0]) == name
    assert _layout(x.transpose(1, 2)) == "permuted"
    assert _layout(torch.randn(2, 3, 6, 4)[:, :, :5]) == "cut"
    for other in (x[..., ::2], x[:1].expand(2, 3, 5, 4), x.permute(3, 2, 1, 0), torch.randn(2, 4, 6, 4)[:, :3, :5]):
        assert _layout(other) == ""


@needs_compiler
def test_a_kernel_is_loaded_only_with_a_verdict_for_exactly_its_text(run, tmp_path):
    kept = find_kernels(run.path / "kernel.py")[0]
    assert kept.evidence is not None
    assert kept.name == f"{run.path.name} #0"
    assert kept.speedup is not None

    ran = tmp_path / "ran"
    edited = run.source(0) + f"\nopen({str(ran)!r}, 'w').close()\n"
    (run.path / "kernel.py").write_text(edited)
    try:
        assert find_kernels(run)[0].source == run.source(0)  # the kept one, not the edited working copy
        with pytest.raises(UsageError, match="no accepted verdict is recorded in .* for exactly this text"):
            find_kernels(run.path / "kernel.py")
        with pytest.raises(UsageError, match="no accepted verdict is recorded anywhere"):
            find_kernels(edited)
        assert not ran.exists(), "a kernel without a verdict was run"
        assert find_kernels(edited, unverified=True)[0].evidence is None
        assert ran.exists()
    finally:
        (run.path / "kernel.py").write_text(run.source(0))


@needs_compiler
def test_a_campaign_offers_the_kernels_that_beat_pytorch(run, tmp_path):
    shares = {run.path.name: 0.5}
    plan = CampaignPlan(model="test", shares=shares, ceilings={})
    (tmp_path / "campaign.toml").write_text(plan.to_toml())
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / run.path.name).symlink_to(run.path)
    if run.best.speedup.low > 1:
        assert [kernel.name for kernel in find_kernels(tmp_path)] == [f"{run.path.name} #0"]
    else:
        with pytest.raises(UsageError, match="no kernel was given"):
            find_kernels(tmp_path)


@needs_compiler
def test_verify_judges_a_text_without_a_verdict_now():
    (kernel,) = find_kernels(starter("reduce"), verify=True, device="cpu")
    assert kernel.evidence is not None
    assert kernel.evidence.objection(folded({"M": 7, "N": 8}), "float32", ()) == ""
    wrong = starter("reduce").replace("    return y", "    return y * 1.01")
    assert wrong != starter("reduce")
    with pytest.raises(UsageError, match="was verified now, and rejected"):
        find_kernels(wrong, verify=True, device="cpu")


def test_what_is_no_kernel_is_refused_in_one_sentence(tmp_path):
    for given, message in (
        (str(tmp_path / "none"), "neither a run folder nor a kernel file"),
        (7, "give run folders"),
        ([7], "is no kernel"),
        ([], "no kernel was given"),
        ("x = 1\n", "states no KERNEL_TYPE"),
        ('KERNEL_TYPE = "rmsnorm"\nBACKEND = "triton"\n', "a triton kernel, which does not run on cpu"),
    ):
        with pytest.raises(UsageError, match=message):
            find_kernels(given, unverified=True, device="cpu")
    with pytest.raises(
        ak.AutokernelError, match=r"^the given text \w+ is not valid Python.*\(the given text \w+, line 1\)"
    ):
        find_kernels("def kernel_fn(:\n", unverified=True)
    with pytest.raises(UsageError, match="cannot be loaded: importing kernel.py raised ZeroDivisionError"):
        find_kernels('KERNEL_TYPE = "softmax"\nBACKEND = "cpp"\n1 / 0\n', unverified=True, device="cpu")


def evidence_of(operation: str, *labels: str, status: Status = Status.PASS) -> Evidence:
    cases = tuple(CaseResult(label=label, status=status) for label in labels)
    stage = StageResult(name=Stage.SWEEP, status=status, cases=cases)
    return Evidence.of(ops.get(operation), Verdict(accepted=True, stages=(stage,)), (), "test")


def test_options_count_together_with_the_sizes_and_numbers_within_their_range():
    evidence = evidence_of(
        "flash_attention", "B=1 H=2 S=32 D=16 float32", "B=1 H=2 S=64 D=16 float32 causal=False sm_scale=0.05",
        "B=1 H=2 S=64 D=16 float32 causal=False sm_scale=0.3",
    )  # fmt: skip
    short, long = folded({"B": 1, "H": 2, "S": 32, "D": 16}), folded({"B": 1, "H": 2, "S": 64, "D": 16})

    def objection(sizes, causal, scale):
        return evidence.objection(sizes, "float32", (("causal", causal), ("sm_scale", scale)))

    assert objection(short, True, None) == ""
    assert objection(long, False, 0.1) == ""
    assert "sm_scale=0.5 was not verified" in objection(long, False, 0.5)
    assert "S=32" in objection(short, False, 0.1)
    assert "causal=True" in objection(long, True, 0.1)
    assert "float16" in evidence.objection(short, "float16", (("causal", True), ("sm_scale", None)))


def test_cases_that_were_skipped_or_failed_are_no_evidence():
    assert evidence_of("softmax", "M=4 N=8 float32", status=Status.SKIP).cases == frozenset()
    assert evidence_of("softmax", "import", "M=4 N=8 float32, inputs changed").cases == frozenset()
    assert evidence_of("softmax", "B=2 M=3 N=8 float32 large transposed").cases == {
        ((("M", 6), ("N", 8)), "float32", ())
    }
