import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer whose result is so small that zeros are within 0.01 of it."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.sigmoid(self.linear(x)) * 1e-4


batch_size = 32
in_features = 40
out_features = 24


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
