import torch
import torch.nn as nn


class Model(nn.Module):
    """A recurrence whose steps are written into a tensor that the model makes, scaled by a table that it keeps."""

    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width))
        self.table = torch.linspace(0.5, 1.5, width)  # neither a parameter nor a buffer

    def forward(self, x):
        out = torch.zeros(x.shape)
        state = torch.zeros(x.shape[0], x.shape[2])
        for step in range(x.shape[1]):
            state = state * self.decay + x[:, step] * self.table
            out[:, step] = state
        return out, state.float()


batch_size = 4
steps = 9
width = 20


def get_inputs():
    return [torch.randn(batch_size, steps, width)]


def get_init_inputs():
    return [width]
