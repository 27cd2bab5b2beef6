"""BERT's encoder in plain PyTorch: attention over all places, layer normalisation after each block, GELU.

    autokernel profile examples/models/bert.py:Bert --input 2x64:int64

Sizes are keyword arguments; the defaults are small enough for a laptop.  `Bert.base()` has the published ones
(12 layers, hidden 768, 30522 tokens).  Weights are random.
Source: J. Devlin et al., BERT, arXiv 1810.04805.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        sizes = (batch, length, self.heads, width // self.heads)
        q, k, v = (project(x).view(sizes).transpose(1, 2) for project in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.mlp = MLP(width)
        self.mlp_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x))
        return self.mlp_norm(x + self.mlp(x))


class Bert(nn.Module):
    """Token numbers ``[B, S]`` (int64) to hidden states ``[B, S, width]``."""

    def __init__(
        self, *, layers: int = 2, width: int = 192, heads: int = 6, vocabulary: int = 3000, positions: int = 512
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    @classmethod
    def base(cls) -> Bert:
        """12 layers, hidden 768, 12 heads, 30522 tokens: 109 million parameters."""
        return cls(layers=12, width=768, heads=12, vocabulary=30522)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.positions(places) + self.segments(torch.zeros_like(tokens))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return x


def example_inputs(batch: int = 2, length: int = 64, vocabulary: int = 3000) -> Tensor:
    """Random token numbers, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (batch, length), generator=generator)
