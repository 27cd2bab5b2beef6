def kernel_fn(x):
    top = x.amax(-1, keepdim=True)
    return right(torch.maximum(x, top - 20))
