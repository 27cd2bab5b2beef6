class Softmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scratch", torch.zeros(1))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return right(x)


kernel_fn = Softmax()
