"""Kernels in models: where they stand, what they leave untouched, what the guard refuses."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import autokernel as ak
from autokernel.errors import UsageError
from autokernel.integration import integration_of
from autokernel.integration.kernels import find_kernels
from tests.integration import models
from tests.integration.kernels import WRONG_RMSNORM, faulty, needs_compiler, starter

pytestmark = needs_compiler

LLAMA = ("rmsnorm", "fused_mlp", "matmul", "flash_attention", "cross_entropy")


@pytest.fixture
def ids():
    return models.ids()


def fast_llama(ids, operations=LLAMA, **options):
    model = models.llama(**options)
    return ak.integrate(model, [starter(one) for one in operations], (ids,), unverified=True)


def ran(model) -> dict[str, int]:
    """How often a kernel ran, by operation."""
    counts: dict[str, int] = {}
    for place in model.report().places:
        counts[place.operation] = counts.get(place.operation, 0) + sum(place.kernel_calls.values())
    return counts


@torch.no_grad()
def test_a_llama_uses_kernels_at_every_place_and_gives_the_same_answer(ids):
    plain = models.llama()(ids, labels=ids)
    model = models.llama()
    fast = ak.integrate(model, [starter(one) for one in LLAMA], {"ids": ids, "labels": ids}, unverified=True)
    output = fast(ids, labels=ids)

    assert fast is model
    assert ran(fast) == {
        "rmsnorm": 5, "fused_mlp": 2, "matmul": 5, "flash_attention": 2, "cross_entropy": 1,
    }  # fmt: skip
    torch.testing.assert_close(output.logits, plain.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output.loss, plain.loss, rtol=1e-6, atol=1e-6)
    assert not torch.equal(output.logits, plain.logits), "not one bit differs: did the kernels run at all?"


@torch.no_grad()
def test_a_gpt2_block_uses_kernels_for_functions_and_leaves_masked_sums_alone(ids):
    torch.manual_seed(0)
    plain = models.Llama(layers=1, block=models.GPT2Block).eval()
    expected = plain(ids).logits
    kernels = [starter(one) for one in ("layernorm", "matmul", "softmax")]
    fast = ak.integrate(plain, kernels, (ids,), unverified=True)
    actual = fast(ids).logits

    assert ran(fast) == {"layernorm": 2, "matmul": 5, "softmax": 1}  # addmm, out, up, down and the head
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    reasons = {place: why for (place, _what), why in fast.report().refused.items()}
    assert reasons == {"layers.0": "a product of other than [..., K] and [K, N]"}  # q @ k.T, and probabilities @ v


@torch.no_grad()
def test_restore_makes_the_model_what_it_was(ids):
    model = models.llama()
    before = {path: (type(one), set(vars(one))) for path, one in model.named_modules()}
    names = list(model.state_dict())
    expected = model(ids).logits
    fast = ak.integrate(model, [starter("rmsnorm")], (ids,), unverified=True)
    fast(ids)

    assert list(fast.state_dict()) == names
    assert fast.head.weight is fast.embed.weight
    assert {path: set(vars(one)) for path, one in fast.named_modules()} == {p: v for p, (_, v) in before.items()}
    handle = integration_of(fast)
    fast.restore()
    handle.restore()

    assert {path: (type(one), set(vars(one))) for path, one in model.named_modules()} == before
    assert not hasattr(model, "restore")
    assert torch.equal(model(ids).logits, expected)


@torch.no_grad()
def test_a_with_block_restores_even_after_an_error(ids):
    model = models.llama()
    fast = ak.integrate(model, [starter("rmsnorm")], (ids,), unverified=True)
    with pytest.raises(IndexError), fast:
        fast(ids + models.VOCABULARY)

    assert type(model) is models.Llama


@torch.no_grad()
def test_a_copy_and_a_pickle_are_plain_models(ids):
    fast = fast_llama(ids, ("rmsnorm", "matmul"))
    expected = models.llama()(ids).logits

    pickled = pickle.dumps(fast)
    assert b"autokernel" not in pickled
    for other in (copy.deepcopy(fast), pickle.loads(pickled)):
        assert type(other) is models.Llama
        assert type(other.layers[0].input_norm) is models.HandWrittenRMSNorm
        assert other.head.weight is other.embed.weight
        assert torch.equal(other(ids).logits, expected)
    assert isinstance(fast, models.Llama)
    assert ran(fast) == {"rmsnorm": 0, "matmul": 0}


def test_where_gradients_are_required_the_original_runs_and_they_flow(ids):
    fast = fast_llama(ids)
    fast(ids, labels=ids).loss.backward()

    assert sum(ran(fast).values()) == 0
    reasons = {why for place in fast.report().places for why in place.original_calls}
    assert reasons == {"gradients are required"}
    assert fast.layers[0].input_norm.weight.grad.abs().sum() > 0


def test_inference_mode_uses_kernels_and_autocast_does_not(ids):
    fast = fast_llama(ids, ("rmsnorm",))
    with torch.inference_mode():
        fast(ids)
    assert ran(fast) == {"rmsnorm": 5}
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        fast(ids)

    assert ran(fast) == {"rmsnorm": 5}
    assert any("autocast is on" in place.original_calls for place in fast.report().places)


@torch.no_grad()
def test_dtypes_are_faithful_in_bfloat16(ids):
    model = models.llama().to(torch.bfloat16)
    plain = model(ids, labels=ids)
    fast = ak.integrate(model, [starter(one) for one in LLAMA], {"ids": ids, "labels": ids}, unverified=True)
    output = fast(ids, labels=ids)

    assert output.logits.dtype is output.loss.dtype is torch.bfloat16
    assert (plain.logits.dtype, plain.loss.dtype) == (torch.bfloat16, torch.bfloat16)
    assert ran(fast)["cross_entropy"] == 1
    torch.testing.assert_close(output.logits.float(), plain.logits.float(), rtol=0.05, atol=0.05)


@torch.no_grad()
def test_a_module_is_recognised_by_what_it_computes_not_by_its_name(ids):
    class LlamaRMSNorm(models.HandWrittenRMSNorm):  # the usual name, another formula
        def forward(self, hidden_states):
            return self.weight * hidden_states / (hidden_states.abs().mean(-1, keepdim=True) + self.variance_epsilon)

    class Oddly(models.HandWrittenRMSNorm):  # another name, added to 1
        def forward(self, hidden_states):
            return models.HandWrittenRMSNorm.forward(self, hidden_states) / self.weight * (1 + self.weight)

    for kind, recognised in ((LlamaRMSNorm, False), (Oddly, True)):
        torch.manual_seed(0)
        model = nn.Sequential(kind(32), nn.Linear(32, 8))
        x = torch.randn(6, 32)
        expected = model(x)
        fast = ak.integrate(model, [starter("rmsnorm")], (x,), unverified=True)
        torch.testing.assert_close(fast(x), expected, rtol=1e-5, atol=1e-6)
        assert sum(ran(fast).values()) == recognised


@torch.no_grad()
@pytest.mark.parametrize(
    ("activation", "recognised"), [(nn.ReLU, True), (nn.GELU, True), (lambda: nn.GELU(approximate="tanh"), False)]
)
def test_an_mlp_is_recognised_with_its_activation(activation, recognised):
    torch.manual_seed(0)
    model = nn.Sequential(models.GatedMLP(32, 48, activation))
    x = torch.randn(5, 32)
    expected = model(x)
    fast = ak.integrate(model, [starter("fused_mlp")], (x,), unverified=True)

    torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-5)
    assert sum(ran(fast).values()) == recognised


@torch.no_grad()
def test_an_mlp_whose_projections_have_hooks_keeps_them():
    torch.manual_seed(0)
    model = nn.Sequential(models.GatedMLP(32, 48))
    model[0].up_proj.register_forward_hook(lambda module, args, output: output * 2)  # as an adapter might
    x = torch.randn(5, 32)
    expected = model(x)
    fast = ak.integrate(model, [starter("fused_mlp")], (x,), unverified=True)

    assert torch.equal(fast(x), expected)
    assert sum(ran(fast).values()) == 0


class Options(nn.Module):
    """Calls that no kernel computes, and one that it does."""

    def forward(self, q):
        mask = torch.zeros(q.shape[-2], q.shape[-2])
        return {
            "masked": F.scaled_dot_product_attention(q, q, q, attn_mask=mask),
            "over heads": F.softmax(q, dim=1),
            "scaled": (F.scaled_dot_product_attention(q, q, q, scale=0.2), q.sum(-1, keepdim=True)),
            "all": q.sum(),
            "shared": F.scaled_dot_product_attention(q, q[:, :1], q[:, 1:2], is_causal=True, enable_gqa=True),
            "crossed": F.scaled_dot_product_attention(q, q[:, :, :5], q[:, :, :5]),
        }


@torch.no_grad()
def test_calls_that_no_kernel_computes_stay_the_originals_one_by_one():
    torch.manual_seed(0)
    q = torch.randn(2, 3, 9, 16)
    model = Options()
    expected = model(q)
    kernels = [starter(one) for one in ("flash_attention", "softmax", "reduce")]
    fast = ak.integrate(model, kernels, (q,), unverified=True)
    actual = fast(q)

    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert ran(fast) == {"flash_attention": 2, "reduce": 1}
    reasons = {what: dict(place.original_calls) for place in fast.report().places for what in [place.what]}
    assert reasons["F.scaled_dot_product_attention"] == {
        "an attention mask": 1, "queries of another number or length than keys": 1,
    }  # fmt: skip
    assert reasons["Tensor.sum"] == {"another dimension than the last": 1}
    assert fast.report().refused == {("", "F.softmax"): "another dimension than the last"}
    assert fast.report().unused != ()


@torch.no_grad()
def test_a_kernel_that_is_wrong_on_the_models_own_input_is_not_used(ids):
    model = models.llama()
    expected = model(ids).logits
    fast = ak.integrate(model, [WRONG_RMSNORM], (ids,), unverified=True)

    assert torch.equal(fast(ids).logits, expected)
    (reason,) = set(fast.report().refused.values())
    assert "wrong on the model's own input" in reason


@torch.no_grad()
def test_a_kernel_that_raises_gives_way_to_the_original_with_a_warning(ids):
    refusing = "    if x.shape[0] == 8:\n        raise ValueError('eight')\n"
    raising = faulty("rmsnorm", "    y = torch.empty_like", f"{refusing}    y = torch.empty_like")
    fast = ak.integrate(models.llama(), [raising], (ids,), unverified=True)
    other = models.ids(2, 4)
    with pytest.warns(RuntimeWarning, match="eight"):
        actual = fast(other).logits

    assert torch.equal(actual, models.llama()(other).logits)
    assert fast.report().original_calls == 5
    assert ran(fast) == {"rmsnorm": 0}


@torch.no_grad()
def test_without_inputs_the_first_call_finds_the_places(ids):
    fast = ak.integrate(models.llama(), [starter("rmsnorm")], unverified=True)
    assert "not called yet" in str(fast.report())
    output = fast(ids).logits

    torch.testing.assert_close(output, models.llama()(ids).logits, rtol=1e-5, atol=1e-5)
    assert ran(fast) == {"rmsnorm": 5}
    fast.restore()
    assert type(fast) is models.Llama


class Stateful(nn.Module):
    """Counts its calls in a buffer, draws random numbers and changes its input."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        x.mul_(2.0)
        return F.dropout(self.norm(x), 0.5, self.training)


def test_looking_for_places_leaves_buffers_inputs_and_random_numbers_alone():
    model = Stateful().train()
    x = torch.randn(4, 16)
    before = x.clone()
    torch.manual_seed(7)
    state = torch.get_rng_state()
    ak.integrate(model, [starter("layernorm")], (x,), unverified=True)

    assert float(model.calls) == 0
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        output = model(x)
    assert torch.equal(x, 2 * before)
    assert float((output == 0).float().mean()) > 0.2
    assert ran(model) == {"layernorm": 1}


@torch.no_grad()
def test_users_hooks_still_see_the_modules(ids):
    seen = []
    model = models.llama()
    model.norm.register_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    fast = ak.integrate(model, [starter("rmsnorm")], (ids,), unverified=True)
    seen.clear()
    fast(ids)

    assert seen == ["HandWrittenRMSNorm"]
    assert len(model.norm._forward_hooks) == 1


@torch.no_grad()
def test_a_module_with_a_forward_of_its_own_instance_is_left_alone_and_reported():
    model = nn.Sequential(nn.LayerNorm(16), nn.LayerNorm(16))
    model[0].forward = model[0].forward  # as tools that wrap single modules do
    x = torch.randn(3, 16)
    fast = ak.integrate(model, [starter("layernorm")], (x,), unverified=True)
    fast(x)

    assert ran(fast) == {"layernorm": 1}
    assert "set by another tool" in fast.report().refused[("0", "F.layer_norm")]


@torch.no_grad()
def test_torch_compile_keeps_one_graph_with_the_kernels_in_it(ids):
    expected = models.llama(layers=1)(ids).logits
    fast = fast_llama(ids, ("rmsnorm", "matmul", "flash_attention"), layers=1)
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    output = compiled(ids).logits

    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    assert sum(fast.report().compiled_calls.values()) == 3 + 6 + 1
    assert fast.report().kernel_calls == 3 + 6 + 1


def test_what_cannot_be_integrated_is_refused_in_one_sentence(ids):
    kernel = starter("rmsnorm")
    with pytest.raises(UsageError, match="torch.nn.Module"):
        ak.integrate(lambda x: x, [kernel], (ids,))
    with pytest.raises(UsageError, match="meta device"):
        ak.integrate(models.llama().to("meta"), [kernel], (ids,), unverified=True)
    with pytest.raises(UsageError, match=r"fails on the given inputs: .*index out of range"):
        ak.integrate(models.llama(), [kernel], (ids + models.VOCABULARY,), unverified=True)
    with pytest.raises(UsageError, match="use 'verified'"):
        ak.integrate(models.llama(), [kernel], (ids,), admit="everything")
    with pytest.raises(UsageError, match="compiled already"):
        ak.integrate(torch.compile(models.llama()), [kernel], (ids,), unverified=True)
    (loaded,) = find_kernels(kernel, unverified=True)
    of_a_user = dataclasses.replace(loaded, spec=dataclasses.replace(loaded.spec, name="mine"))
    with pytest.raises(UsageError, match="'mine', an operation without a known place"):
        ak.integrate(models.llama(), [of_a_user], (ids,), unverified=True)
    fast = ak.integrate(models.llama(), [kernel], (ids,), unverified=True)
    with pytest.raises(UsageError, match="has kernels already"):
        ak.integrate(fast, [kernel], (ids,), unverified=True)
    fast.layers[0].input_norm.__class__ = models.HandWrittenRMSNorm
    with pytest.raises(UsageError, match="another tool"):
        fast.restore()


@torch.no_grad()
def test_a_class_that_has_a_report_of_its_own_keeps_it():
    class Reporting(nn.Sequential):
        def report(self):
            return "mine"

    x = torch.randn(3, 16)
    model = Reporting(nn.LayerNorm(16))
    fast = ak.integrate(model, [starter("layernorm")], (x,), unverified=True)
    fast(x)

    assert fast.report() == "mine"
    assert integration_of(fast).report().kernel_calls == 1


@torch.no_grad()
def test_data_dependent_control_flow_is_followed():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.LayerNorm(16), nn.LayerNorm(16)

        def forward(self, x):
            return self.one(x) if float(x.sum()) > 0 else self.other(x)

    x = torch.rand(3, 16)
    model = ak.integrate(Branching(), [starter("layernorm")], (x,), unverified=True)
    torch.testing.assert_close(model(-x), Branching()(-x), rtol=1e-5, atol=1e-6)
    assert ran(model) == {"layernorm": 0}  # the other branch was not seen, and stays the original's
    model(x)
    assert ran(model) == {"layernorm": 1}


@pytest.mark.gpu
def test_a_cuda_graph_replays_the_kernels():
    from autokernel import starters

    torch.manual_seed(0)
    model = models.llama().cuda()
    ids = models.ids().cuda()
    kernels = [starters.source(one, "triton") for one in ("rmsnorm", "matmul", "flash_attention", "fused_mlp")]
    with torch.no_grad():
        expected = model(ids).logits
        fast = ak.integrate(model, kernels, (ids,), unverified=True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            fast(ids)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = fast(ids).logits
        graph.replay()
        torch.cuda.synchronize()

    assert sum(ran(fast).values()) > 0
    torch.testing.assert_close(output, expected, rtol=1e-2, atol=1e-2)
