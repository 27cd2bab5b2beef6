"""Language models as people have them: places are found in classes that this project has never seen."""

from __future__ import annotations

import pytest
import torch

import autokernel as ak
from autokernel.integration import integration_of
from tests.integration.kernels import needs_compiler, starter

transformers = pytest.importorskip("transformers")

pytestmark = needs_compiler


@torch.no_grad()
def test_a_hugging_face_llama_generates_the_same_tokens_with_kernels():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=211, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(3, 211, (2, 9))
    mask = torch.ones_like(ids)
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    kernels = [starter(one) for one in ("rmsnorm", "fused_mlp", "flash_attention", "rotary_embedding")]
    fast = ak.integrate(model, kernels, {"input_ids": ids, "labels": ids}, unverified=True)
    check = ak.check_model(fast, {"input_ids": ids, "labels": ids}, timed=False)
    integration_of(fast).reset_counts()
    actual = fast.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)

    assert check.ok, check.reason
    assert check.inputs[0].kernel_calls == 5 + 2 + 2 + 2 * 2
    assert torch.equal(actual, expected)
    report = fast.report()
    assert {place.what for place in report.places} == {
        "LlamaRMSNorm", "LlamaMLP", "F.scaled_dot_product_attention", "apply_rotary_pos_emb"
    }  # fmt: skip
    assert report.kernel_calls >= 5 * (5 + 2)
    rotations = [place for place in report.places if place.operation == "rotary_embedding"]
    assert sum(sum(place.kernel_calls.values()) for place in rotations) == 5 * 2 * 2  # each token, layer, q and k
    left_out = model.generate(ids, attention_mask=padded(mask), max_new_tokens=5, do_sample=False)
    fast.restore()
    assert torch.equal(left_out, model.generate(ids, attention_mask=padded(mask), max_new_tokens=5, do_sample=False))


def padded(mask):
    """The first sequence begins two positions later, so each has a table of its own."""
    mask = mask.clone()
    mask[0, :2] = 0
    return mask


ROTATING = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "mistral": "MistralConfig"}


@pytest.mark.parametrize("kind", ROTATING)
@torch.no_grad()
def test_queries_and_keys_of_the_llama_family_are_turned_by_the_kernel(kind):
    torch.manual_seed(0)
    config = getattr(transformers, ROTATING[kind])(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=211, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    inputs = {"input_ids": torch.randint(3, 211, (2, 9))}
    inputs["position_ids"] = torch.stack((torch.arange(9), torch.arange(9) + 4))  # tables of [B, S, D]

    fast = ak.integrate(model, [starter("rotary_embedding")], inputs, unverified=True)
    check = ak.check_model(fast, inputs, timed=False)

    assert check.ok, check.reason
    assert [one.kernel_calls for one in check.inputs if not one.untested] == [4, 4, 4]
    fast.restore()
