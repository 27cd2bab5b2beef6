"""Models of the transformers library, from their configurations with small random weights."""

from __future__ import annotations

import json
import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'autokernel[hf]'")

import autokernel as ak  # noqa: E402
from autokernel.profiling.loading import load  # noqa: E402

SMALL = {
    "vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2}
CONFIGURATIONS = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 16}),
    "mistral": ("MistralForCausalLM", GROUPED),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500, "bos_token_id": 1,
                                 "eos_token_id": 2}),
    "bert": ("BertModel", SMALL),
    "t5": ("T5Model", {"d_model": 64, "d_ff": 160, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 500,
                       "feed_forward_proj": "gated-gelu"}),
    "vit": ("ViTModel", {**SMALL, "image_size": 32, "patch_size": 8}),
}  # fmt: skip
OF_LLAMA = {"rmsnorm": 5, "flash_attention": 2, "fused_mlp": 2, "rotary_embedding": 4}
EXPECTED = {
    "llama": OF_LLAMA,
    "qwen2": OF_LLAMA,
    "qwen3": {**OF_LLAMA, "rmsnorm": 9},
    "mistral": OF_LLAMA,
    "gpt2": {"layernorm": 5, "flash_attention": 2},
    "bert": {"layernorm": 5, "flash_attention": 2},
    "t5": {"rmsnorm": 12, "flash_attention": 6, "fused_mlp": 4},
    "vit": {"layernorm": 5, "flash_attention": 2},
}


def inputs_of(kind):
    tokens = torch.randint(500, (2, 32), generator=torch.Generator().manual_seed(0))
    if kind == "vit":
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    return {"input_ids": tokens} | ({"decoder_input_ids": tokens} if kind == "t5" else {})


def report_of(kind, tmp_path, implementation, **inputs):
    architecture, fields = CONFIGURATIONS[kind]
    text = json.dumps({"model_type": kind, "architectures": [architecture], **fields})
    (tmp_path / "config.json").write_text(text)
    model = load(f"hf:{tmp_path}", {"attn_implementation": implementation}).model
    return ak.profile(model, {**inputs_of(kind), **inputs}, train=False, repeats=1, floors=False)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_every_operation_of_the_model_is_found(kind, implementation, tmp_path):
    report = report_of(kind, tmp_path, implementation)
    counts = {operation: sum(target.calls for target in report.operation(operation)) for operation in EXPECTED[kind]}

    assert counts == EXPECTED[kind]
    assert report.operation("matmul")
    assert report.totals.explained >= 0.97
    assert report.aligned
    assert all(target.offered for target in report.operation("rotary_embedding"))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_attention_of_a_language_model_is_causal_and_that_of_an_encoder_is_not(implementation, tmp_path):
    (of_llama,) = report_of("llama", tmp_path, implementation).operation("flash_attention")
    (of_bert,) = report_of("bert", tmp_path, implementation).operation("flash_attention")

    assert (of_llama.variants[0].options, of_bert.variants[0].options) == ({"causal": True}, {"causal": False})
    assert of_llama.offered
    assert of_bert.offered


def test_the_loss_of_a_language_model_is_its_cross_entropy(tmp_path):
    labels = torch.randint(500, (2, 32))
    (loss,) = report_of("llama", tmp_path, "sdpa", labels=labels).operation("cross_entropy")

    assert loss.offered
    assert loss.variants[0].shape == {"N": 64, "V": 500}


def test_what_the_shipped_operations_do_not_compute_says_why(tmp_path):
    report = report_of("t5", tmp_path, "eager")

    assert report.operation("fused_mlp")[0].unlike == "the activation gelu_tanh"
    assert any("bias" in target.unlike for target in report.operation("flash_attention"))


def test_a_module_of_the_library_is_captured(tmp_path):
    report = report_of("gpt2", tmp_path, "sdpa")
    from autokernel import ops

    spec = ops.load_file(report.capture("transformer.h.0.mlp", tmp_path / "mlp.py"))
    assert spec.name == "gpt2mlp"
