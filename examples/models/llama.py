"""A Llama-like language model in plain PyTorch: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.

    autokernel profile examples/models/llama.py:Llama --input 1x64:int64

Sizes are keyword arguments; the defaults are small enough for a laptop.  `Llama.large()` has those of a
1.1-billion-parameter model (22 layers, hidden 2048, 32 heads and 4 of keys and values).  Weights are random.
Source: H. Touvron et al., Llama 2, arXiv 2307.09288; sizes: P. Zhang et al., TinyLlama, arXiv 2401.02385.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * self.weight


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + D/2) of ``[..., S, D]``; cos and sin are ``[S, D]``."""
    return x * cos + rotate_half(x) * sin


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        self.q = nn.Linear(width, heads * self.head_width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(heads * self.head_width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.mlp = SwiGLU(width, hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """Token numbers ``[B, S]`` (int64) to logits ``[B, S, vocabulary]``."""

    def __init__(
        self, *, layers: int = 2, width: int = 256, heads: int = 8, kv_heads: int = 2, hidden: int = 704,
        vocabulary: int = 2000, base: float = 10000.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.head_width, self.base, self.vocabulary = width // heads, base, vocabulary
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    @classmethod
    def large(cls) -> Llama:
        """22 layers, hidden 2048, 32 heads, 4 of keys and values: 1.1 billion parameters."""
        return cls(layers=22, width=2048, heads=32, kv_heads=4, hidden=5632, vocabulary=32000)

    def tables(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of ``position * base**(-2i / D)``, ``[S, D]``."""
        exponents = torch.arange(0, self.head_width, 2, device=like.device).float() / self.head_width
        angles = torch.arange(length, device=like.device).float()[:, None] * self.base**-exponents
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = self.tables(tokens.shape[1], x)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def example_inputs(batch: int = 1, length: int = 64, vocabulary: int = 2000) -> Tensor:
    """Random token numbers, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (batch, length), generator=generator)
