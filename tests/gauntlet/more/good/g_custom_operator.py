@torch.library.custom_op("gauntlet_good::rms_norm", mutates_args=())
def rms_norm_operator(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return right(x, weight, eps)


@rms_norm_operator.register_fake
def _(x, weight, eps):
    return torch.empty_like(x)


def kernel_fn(x, weight, eps=1e-6):
    return rms_norm_operator(x, weight, eps)
