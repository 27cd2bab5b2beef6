"""The check of the whole model: it passes what is right, fails what is wrong, and says what is to blame."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import autokernel as ak
from autokernel.errors import UsageError
from autokernel.integration import integration_of
from autokernel.integration.accuracy import judge
from autokernel.integration.blame import find_blame
from autokernel.integration.check import amdahl
from autokernel.integration.sites import Site
from autokernel.integration.trees import Call
from autokernel.integration.variants import variants
from autokernel.measurement import Ratio
from tests.integration import models
from tests.integration.kernels import LATE_RMSNORM, needs_compiler, starter

U32 = 2.0**-24


@needs_compiler
def test_a_right_model_passes_with_its_error_beside_the_plain_ones(tmp_path):
    ids = models.ids()
    model = models.llama()
    fast = ak.integrate(model, [starter("rmsnorm"), starter("fused_mlp")], (ids,), unverified=True)
    check = ak.check_model(fast, {"ids": ids, "labels": ids}, seconds=0.5)

    assert check.ok, check.reason
    assert [one.name for one in check.inputs] == ["inputs", "inputs, batch 1", "inputs, length 5"]
    first = check.inputs[0]
    assert (first.precision, first.kernel_calls, first.original_calls) == ("float64", 7, 0)
    paths = [output.path for output in first.outputs]
    assert paths == [".logits", ".loss", ".hidden[0]", ".hidden[1]", ".hidden[2]"]
    logits = first.outputs[0]
    assert 0 < logits.original < 1e-6
    assert 0 < logits.integrated <= logits.bound < 1e-5
    assert first.language.tokens == 18
    assert first.language.same == first.language.integrated_right == 1.0
    assert first.language.integrated_loss == pytest.approx(first.language.loss, rel=1e-5)
    assert set(check.timing.models) == {"original", "integrated"}
    ratio = check.timing.speedups["integrated over original"]
    assert ratio.low <= ratio.value <= ratio.high
    assert check.timing.rounds >= 8
    assert json.loads(json.dumps(check.to_dict()))["ok"] is True


@needs_compiler
def test_in_bfloat16_the_error_is_judged_beside_the_plain_models_own():
    ids = models.ids()
    model = models.llama().to(torch.bfloat16)
    fast = ak.integrate(model, [starter("rmsnorm"), starter("matmul")], (ids,), unverified=True)
    check = ak.check_model(fast, (ids,), timed=False)

    assert check.ok, check.reason
    assert 1e-3 < check.inputs[0].outputs[0].original < 0.1


@needs_compiler
def test_a_kernel_that_goes_wrong_later_fails_the_check_and_is_to_blame():
    ids = models.ids()
    fast = ak.integrate(models.llama(), [starter("fused_mlp"), LATE_RMSNORM], (ids,), unverified=True)
    with torch.no_grad():
        fast(ids), fast(ids)  # the kernel is wrong from the ninth call on
    check = ak.check_model(fast, (ids,), timed=False, vary=False)

    assert not check.ok
    assert ".logits: its error is" in check.reason
    names = {kernel.name: kernel.operation for kernel in integration_of(fast).kernels}
    assert [names[name] for name in check.blame.kernels] == ["rmsnorm"]
    assert check.blame.how == "alone"
    assert check.blame.rest_passes
    assert len(check.blame.places) == 1, check.blame.places
    assert "HandWrittenRMSNorm" in check.blame.places[0]
    with torch.no_grad():
        fast.restore()
        assert torch.equal(fast(ids).logits, models.llama()(ids).logits)


@needs_compiler
@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1 + 1e-5), (torch.bfloat16, 1.06)])
def test_a_small_error_in_every_product_fails_in_the_models_own_dtype(dtype, factor):
    ids = models.ids()
    model = models.llama().to(dtype)
    fast = ak.integrate(model, [starter("matmul"), starter("rmsnorm")], (ids,), unverified=True)
    (matmul,) = (one for one in integration_of(fast).kernels if one.operation == "matmul")
    right = matmul.function
    object.__setattr__(matmul, "function", lambda A, B: right(A, B) * factor)
    check = ak.check_model(fast, (ids,), timed=False)

    assert not check.ok
    assert check.blame.kernels == (matmul.name,)
    assert check.blame.rest_passes


@needs_compiler
def test_a_check_in_which_no_kernel_ran_does_not_pass():
    class Masked(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5 if self.training else 0.0, is_causal=True)

    q = torch.randn(1, 2, 8, 16)
    fast = ak.integrate(Masked().train(), [starter("flash_attention")], (q,), unverified=True)
    check = ak.check_model(fast, (q,), timed=False)
    assert not check.ok  # traced in train mode, where dropout left no place
    assert "no kernel ran" in check.reason and "F.scaled_dot_product_attention: " in check.reason
    fast.restore()

    fast = ak.integrate(fast.eval(), [starter("flash_attention")], (q,), unverified=True)
    assert ak.check_model(fast, (q,), timed=False).ok


@needs_compiler
def test_in_place_changes_of_inputs_and_modes_are_kept_apart():
    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            x.mul_(2)
            return self.drop(self.norm(x)), x.shape[0], {"largest": x.argmax(-1)}

    x = torch.randn(4, 16)
    before = x.clone()
    fast = ak.integrate(Doubling().train(), [starter("layernorm")], (x,), unverified=True)
    check = ak.check_model(fast, (x,), seconds=0.2)

    assert check.ok, check.reason
    assert set(check.timing.models) == {"original", "integrated"}
    assert torch.equal(x, before)
    assert fast.training and fast.drop.training
    paths = [output.path for output in check.inputs[0].outputs]
    assert paths == ["[0]", "[1]", "[2]['largest']", "inputs[0][0]"]


@needs_compiler
def test_a_model_that_does_not_run_in_float64_is_compared_with_itself_and_says_so():
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            return self.norm(x) @ torch.eye(16)  # float32, whatever x is

    x = torch.randn(4, 16)
    fast = ak.integrate(Single(), [starter("layernorm")], (x,), unverified=True)
    check = ak.check_model(fast, (x,), timed=False, vary=False)

    assert check.ok, check.reason
    assert check.inputs[0].precision == "plain model"
    assert "does not run in float64" in check.inputs[0].note
    small = ak.check_model(fast, (x,), timed=False, vary=False, memory_bytes=10)
    assert "are not free" in small.inputs[0].note


@needs_compiler
def test_compiled_models_are_timed_beside_the_others():
    x = torch.randn(64, 32)
    fast = ak.integrate(nn.Sequential(nn.LayerNorm(32)), [starter("layernorm")], (x,), unverified=True)
    check = ak.check_model(fast, (x,), compiled="aot_eager", seconds=0.2, vary=False)

    assert set(check.timing.models) == {"original", "integrated", "compiled", "compiled integrated"}, check.timing.notes
    assert set(check.timing.speedups) == {
        "integrated over original", "integrated over compiled", "compiled integrated over compiled",
    }  # fmt: skip


@needs_compiler
def test_a_prediction_by_amdahls_law_stands_beside_the_measured_speedup():
    x = torch.randn(4, 16)
    fast = ak.integrate(nn.Sequential(nn.LayerNorm(16)), [starter("layernorm")], (x,), unverified=True)
    integration = integration_of(fast)
    with pytest.raises(UsageError, match="no measured speedup of a layernorm kernel"):
        ak.check_model(fast, (x,), shares={"layernorm": 0.5})
    object.__setattr__(integration.kernels[0], "speedup", Ratio(2.0, 1.9, 2.1))

    assert amdahl(integration, {"layernorm": 0.5}) == pytest.approx(1 / (0.5 + 0.25))
    assert amdahl(integration, {"layernorm": (0.5, 4.0)}) == pytest.approx(1 / (0.5 + 0.125))
    with pytest.raises(UsageError, match="no parts of a whole"):
        amdahl(integration, {"layernorm": 1.5})
    with pytest.raises(UsageError, match="not above 0"):
        amdahl(integration, {"layernorm": (0.5, 0.0)})


def test_check_model_wants_a_model_with_kernels():
    with pytest.raises(UsageError, match="has no kernels"):
        ak.check_model(nn.Linear(2, 2), (torch.randn(1, 2),))


# The judge of outputs, by itself


def judged(plain, integrated, reference, roundoff=U32):
    outputs, note = judge({"y": plain}, {"y": integrated}, reference and {"y": reference[0]}, roundoff)
    return outputs[0], note


def test_an_error_of_twice_the_plain_models_passes_and_of_ten_times_fails():
    right = torch.randn(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 1e-4
    plain = (right + noise).float()

    assert judged(plain, (right - noise).float(), [right])[0].ok
    output, _ = judged(plain, (right + 10 * noise).float(), [right])
    assert not output.ok
    assert output.integrated == pytest.approx(10 * output.original, rel=0.01)


def test_one_wrong_element_among_many_fails_by_its_size():
    right = torch.ones(1_000_000, dtype=torch.float64)
    plain = right.float()
    wrong = plain.clone()
    wrong[77] += 1e-4  # 1e-7 of the whole

    output, _ = judged(plain, wrong, [right])
    assert not output.ok
    assert "largest error" in output.reason


def test_nan_infinity_shape_dtype_and_tokens_are_judged():
    right = torch.tensor([1.0, float("inf"), float("nan")], dtype=torch.float64)
    same = right.float()
    assert judged(same, same.clone(), [right])[0].ok
    assert not judged(same, torch.tensor([1.0, float("inf"), 0.0]), [right])[0].ok
    assert not judged(torch.ones(3), torch.tensor([1.0, 1.0, float("nan")]), [torch.ones(3).double()])[0].ok
    assert "shape" in judged(torch.ones(3), torch.ones(4), None)[0].reason
    assert "dtype" in judged(torch.ones(3), torch.ones(3).half(), None)[0].reason
    tokens = torch.arange(100)
    assert judged(tokens, tokens.clone(), [tokens])[0].ok
    assert not judged(tokens, tokens + 1, [tokens])[0].ok


def test_a_model_unlike_its_reference_is_compared_with_itself():
    plain = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    output, note = judged(plain, plain.clone(), [-plain.double()])
    assert output.ok
    assert "unlike its own" in note
    assert not judged(plain, plain * 1.001, [-plain.double()])[0].ok


# Blame, by itself


def sites(*names: str) -> list[Site]:
    made = [Site(path=f"layer{number}", operation=name, what=name, guard=None) for number, name in enumerate(names)]
    for site in made:
        site.kernel_calls[f"{site.operation} kernel"] = 1
    return made


def test_blame_finds_a_place_a_pair_and_nothing():
    some = sites("a", "a", "a", "b", "c")
    alone = find_blame(some, lambda on: some[2] in on)
    assert (alone.kernels, alone.places, alone.how, alone.rest_passes) == (
        ("a kernel",),
        ("layer2 (a)",),
        "alone",
        True,
    )

    pair = find_blame(some, lambda on: some[1] in on and some[4] in on)
    assert (pair.kernels, pair.how, pair.rest_passes) == (("a kernel", "c kernel"), "in a pair", True)

    together = find_blame(some, lambda on: len(on) == 5)
    assert together.how == "all together"
    never = find_blame(some, lambda on: False)
    assert never.how == "not reproduced"
    assert "not deterministic" in str(never)
    everywhere = find_blame(some, lambda on: len(on) > 0)
    assert everywhere.kernels == ("a kernel", "b kernel", "c kernel")


# Other shapes, by themselves


def test_variants_change_batch_and_length_of_all_tensors_together():
    ids, mask = torch.zeros(3, 8, dtype=torch.int64), torch.zeros(3, 1, 8, 8)
    found = {name: [tuple(value.shape) for value in call.args] for name, call in variants(Call((ids, mask)))}
    assert found == {"batch 1": [(1, 8), (1, 1, 8, 8)], "length 5": [(3, 5), (3, 1, 5, 5)]}
    assert [name for name, _ in variants(Call((torch.zeros(1, 4),)))] == ["batch 2"]
    assert variants(Call((torch.tensor(1.0),))) == []


@dataclasses.dataclass
class Boxed:
    value: torch.Tensor


@needs_compiler
def test_a_variant_that_the_plain_model_refuses_counts_as_not_tested():
    class Picky(nn.Sequential):
        def forward(self, x):
            if x.shape[0] != 4:
                raise ValueError("four rows, please")
            return Boxed(super().forward(x))

    x = torch.randn(4, 16)
    fast = ak.integrate(Picky(nn.LayerNorm(16)), [starter("layernorm")], (x,), unverified=True)
    check = ak.check_model(fast, [(x,), (x + 1,)], timed=False)

    assert check.ok
    assert [bool(one.untested) for one in check.inputs] == [False, True, False, True]
    assert "four rows" in check.inputs[1].untested
    with pytest.raises(UsageError, match="inputs: the plain model fails"):
        ak.check_model(fast, (x[:2],), timed=False)


@pytest.mark.gpu
def test_on_a_gpu_device_times_and_cuda_graphs_stand_beside_wall_times():
    from autokernel import starters

    ids = models.ids(4, 64).cuda()
    model = models.llama().cuda().half()
    kernels = [starters.source(one, "triton") for one in ("rmsnorm", "fused_mlp", "flash_attention")]
    fast = ak.integrate(model, kernels, (ids,), unverified=True)
    check = ak.check_model(fast, (ids,), seconds=1.0)

    assert check.ok, check.reason
    assert check.inputs[0].kernel_calls == 5 + 2 + 2
    assert set(check.timing.models) == {"original", "integrated", "graph", "graph integrated"}, check.timing.notes
    assert set(check.timing.device_speedups) == {"integrated over original", "graph integrated over graph"}
    assert all(one.device_us > 0 for one in check.timing.models.values())
