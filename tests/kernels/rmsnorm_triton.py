"""A right kernel for tests to plant faults in: root-mean-square normalisation over the last axis.

y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "rmsnorm"
BACKEND = "triton"

NUM_WARPS = 8
MAX_COLS_PER_WARP = 1024  # a wider row gets more warps, so that it still fits the registers


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride_x, stride_y, n_cols, eps, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # int64: row * stride can pass 2**31
    cols = tl.arange(0, BLOCK_N)
    mask = cols < n_cols

    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)

    mean_square = tl.sum(x * x, axis=0) / n_cols  # masked lanes are 0 and add nothing
    y = x * (1.0 / tl.sqrt(mean_square + eps)) * weight

    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_fn(x, weight, eps=1e-6):
    n_cols = x.shape[-1]
    rows = x.reshape(-1, n_cols)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)

    block_n = triton.next_power_of_2(n_cols)
    num_warps = min(32, max(NUM_WARPS, block_n // MAX_COLS_PER_WARP))
    rms_norm_kernel[(rows.shape[0],)](
        rows, weight.contiguous(), y, rows.stride(0), n_cols, n_cols, eps, BLOCK_N=block_n, num_warps=num_warps
    )
    return y
