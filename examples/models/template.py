"""A template for a model of your own: copy the file, put your model in, and profile it.

    autokernel profile my_model.py:make
    autokernel profile my_model.py:make --arg width=512 --dtype bfloat16 --save profile.json

`make` returns the model, on the CPU and in float32; the command moves it to the device and dtype that were
asked for, and puts it into evaluation mode unless `--train` is given.  `example_inputs` returns what the
model is called with: a tensor, a tuple of positional arguments, or a dict of keyword arguments.  Without it,
give `--input 4x128x256`.  Use sizes that you run in earnest: what is slow depends on them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Replace this by your own; nothing in it is special."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def make(width: int = 256) -> nn.Module:
    """Called with the values of ``--arg NAME=VALUE``."""
    return Model(width)


def example_inputs(batch: int = 4, length: int = 128, width: int = 256) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, length, width, generator=generator)
