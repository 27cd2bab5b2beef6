import os
import warnings

THREADS = int(os.environ.get("RMS_NORM_THREADS", "1")) or len(os.sched_getaffinity(0))


def kernel_fn(x, weight, eps=1e-6):
    assert weight.shape == x.shape[-1:], f"weight {tuple(weight.shape)} does not fit x {tuple(x.shape)}"
    if x.numel() == 0:
        return torch.zeros_like(x)
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        warnings.warn(f"{x.dtype} is computed in float32", stacklevel=2)
        return right(x.float(), weight.float(), eps).to(x.dtype)
    try:
        return right(x, weight, eps)
    except TypeError:
        raise TypeError("rms_norm takes floating-point tensors") from None
