import torch
import torch.nn as nn
import torch.nn.functional as F


class Settings:
    def __init__(self, vocabulary, width, heads, depth, longest):
        self.vocabulary, self.width, self.heads, self.depth, self.longest = vocabulary, width, heads, depth, longest


class Layer(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.heads = settings.heads
        self.before, self.between = nn.LayerNorm(settings.width), nn.LayerNorm(settings.width)
        self.qkv = nn.Linear(settings.width, 3 * settings.width)
        self.out = nn.Linear(settings.width, settings.width)
        self.up, self.down = (
            nn.Linear(settings.width, 2 * settings.width),
            nn.Linear(2 * settings.width, settings.width),
        )
        self.register_buffer("mask", torch.tril(torch.ones(settings.longest, settings.longest)))

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.qkv(self.before(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        x = x + self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Model(nn.Module):
    """A small language model: words in, a score for each next word out; first and last layer share their weights."""

    def __init__(self, settings):
        super().__init__()
        self.words = nn.Embedding(settings.vocabulary, settings.width)
        self.places = nn.Parameter(torch.zeros(settings.longest, settings.width))
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.depth))
        self.head = nn.Linear(settings.width, settings.vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words, scale):
        x = self.words(words) * scale + self.places[: words.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


batch_size = 3
length = 12
settings = Settings(vocabulary=50, width=16, heads=2, depth=2, longest=16)


def get_inputs():
    return [torch.randint(0, settings.vocabulary, (batch_size, length)), torch.rand(1, 1, 16)]


def get_init_inputs():
    return [settings]
