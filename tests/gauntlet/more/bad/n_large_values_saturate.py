def kernel_fn(x, weight, eps=1e-6):
    return right(x.clamp(-1e6, 1e6), weight, eps)
