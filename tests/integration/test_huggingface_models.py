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
    kernels = [starter(one) for one in ("rmsnorm", "fused_mlp", "flash_attention")]
    fast = ak.integrate(model, kernels, {"input_ids": ids, "labels": ids}, unverified=True)
    check = ak.check_model(fast, {"input_ids": ids, "labels": ids}, timed=False)
    integration_of(fast).reset_counts()
    actual = fast.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)

    assert check.ok, check.reason
    assert check.inputs[0].kernel_calls == 5 + 2 + 2
    assert torch.equal(actual, expected)
    report = fast.report()
    assert {place.what for place in report.places} == {"LlamaRMSNorm", "LlamaMLP", "F.scaled_dot_product_attention"}
    assert report.kernel_calls >= 5 * (5 + 2)
