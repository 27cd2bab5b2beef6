import torch

KERNEL_TYPE = "softmax"
BACKEND = "cpp"


@torch.library.custom_op("gauntlet_bad::soften", mutates_args=())
def soften(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def kernel_fn(x):
    return soften(x)
