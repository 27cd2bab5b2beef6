"""GPT-2 in plain PyTorch: learned positions, layer normalisation, attention, GELU, output tied to the embedding.

    autokernel profile examples/models/gpt2.py:GPT2 --input 1x64:int64

Sizes are keyword arguments; the defaults are small enough for a laptop.  `GPT2.small()` has the published ones
(12 layers, hidden 768, 50257 tokens).  Weights are random.
Source: A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT2(nn.Module):
    """Token numbers ``[B, S]`` (int64) to logits ``[B, S, vocabulary]``."""

    def __init__(
        self, *, layers: int = 2, width: int = 192, heads: int = 6, vocabulary: int = 5003, positions: int = 1024
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    @classmethod
    def small(cls) -> GPT2:
        """12 layers, hidden 768, 12 heads, 50257 tokens: 124 million parameters."""
        return cls(layers=12, width=768, heads=12, vocabulary=50257)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def example_inputs(batch: int = 1, length: int = 64, vocabulary: int = 5003) -> Tensor:
    """Random token numbers, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (batch, length), generator=generator)
