import torch
import torch.nn as nn


class Model(nn.Module):
    """The mean hinge loss of predictions against targets that are -1 or 1."""

    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


batch_size = 200
features = 10


def get_inputs():
    return [torch.randn(batch_size, features), torch.randint(0, 2, (batch_size, 1)).float() * 2 - 1]


def get_init_inputs():
    return []
