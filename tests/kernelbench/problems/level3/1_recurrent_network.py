import torch
import torch.nn as nn


class Model(nn.Module):
    """A long short-term memory of two layers, and a linear layer on its last state."""

    def __init__(self, input_size, hidden_size, layers, classes):
        super().__init__()
        self.memory = nn.LSTM(input_size, hidden_size, layers, batch_first=True, dropout=0.0)
        self.out = nn.Linear(hidden_size, classes)

    def forward(self, x, state):
        y, _ = self.memory(x, (state[0], state[1]))
        return self.out(y[:, -1])


batch_size = 6
length = 10
input_size = 12
hidden_size = 16
layers = 2


def get_inputs():
    zeros = [torch.randn(layers, batch_size, hidden_size) for _ in range(2)]
    return [torch.randn(batch_size, length, input_size), zeros]


def get_init_inputs():
    return [input_size, hidden_size, layers, 5]
