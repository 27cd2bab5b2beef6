"""Small models of the usual kinds, for tests that put kernels into them."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH = 101, 32


class HandWrittenRMSNorm(nn.Module):
    """As language models of Hugging Face have it: float32 inside, rounded before the weight."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))
        self.variance_epsilon = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        dtype = hidden_states.dtype
        wide = hidden_states.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(dtype)


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int, activation: type[nn.Module] = nn.SiLU) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)
        self.act_fn = activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (one.view(batch, length, self.heads, -1).transpose(1, 2) for one in self.qkv(x).split(width, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class LlamaBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.input_norm = HandWrittenRMSNorm(width)
        self.attention = Attention(width)
        self.post_norm = HandWrittenRMSNorm(width)
        self.mlp = GatedMLP(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


@dataclasses.dataclass
class LanguageOutput:
    logits: Tensor
    loss: Tensor | None = None
    hidden: tuple[Tensor, ...] = ()


class Llama(nn.Module):
    """Token numbers [B, S] to a `LanguageOutput`; the head shares the embedding's weight."""

    def __init__(self, layers: int = 2, block: type[nn.Module] = LlamaBlock) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(block(WIDTH) for _ in range(layers))
        self.norm = HandWrittenRMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.3)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> LanguageOutput:
        x = self.embed(ids)
        hidden = [x]
        for layer in self.layers:
            x = layer(x)
            hidden.append(x)
        logits = self.head(self.norm(x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1))
        return LanguageOutput(logits, loss, tuple(hidden))


class GPT2Block(nn.Module):
    """Attention with its softmax by hand and dropout, and weights stored as [in, out]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.weight = nn.Parameter(0.1 * torch.randn(width, 3 * width))
        self.bias = nn.Parameter(torch.zeros(3 * width))
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = torch.addmm(self.bias, self.norm(x).view(-1, width), self.weight).view(batch, length, -1)
        q, k, v = (one.view(batch, length, 4, -1).transpose(1, 2) for one in qkv.split(width, dim=-1))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = self.drop(F.softmax(scores.masked_fill(later, float("-inf")), dim=-1)) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


def ids(batch: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def llama(**options) -> Llama:
    torch.manual_seed(0)
    return Llama(**options).eval()
