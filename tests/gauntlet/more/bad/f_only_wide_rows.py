def kernel_fn(x):
    return torch.softmax(x, dim=-1) if x.shape[-1] > 60_000 else right(x)
