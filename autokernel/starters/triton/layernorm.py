"""Starter: layer normalisation over the last axis.

    y[m, n] = (x[m, n] - mean(x[m, :])) / sqrt(var(x[m, :]) + eps) * weight[n] + bias[n]

Cost: 8 FLOP and 2 * itemsize bytes per element: 2 FLOP/byte in float16, far below any ridge point.
Plan: one program per row; the row stays in registers, so the mean, then the variance around it, cost one read of x.
Limit: one tile holds a row, sensible to about N = 65536; a view without unit stride along N is copied first.
Try first: NUM_WARPS by N; several rows per program for small N.  E[x**2] - E[x]**2 saves nothing here, and it
    cancels where the mean is large.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "layernorm"
BACKEND = "triton"

NUM_WARPS = 8
MAX_COLS_PER_WARP = 1024  # a wider row gets more warps, so that it still fits the registers


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, n_cols, eps, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # int64: row * stride can pass 2**31
    cols = tl.arange(0, BLOCK_N)
    mask = cols < n_cols

    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)

    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)  # masked lanes would add mean**2 to the variance
    variance = tl.sum(centred * centred, axis=0) / n_cols
    y = centred * (1.0 / tl.sqrt(variance + eps)) * weight + bias

    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_fn(x, weight, bias, eps=1e-5):
    n_cols = x.shape[-1]
    rows = x.reshape(-1, n_cols)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)

    block_n = triton.next_power_of_2(n_cols)
    num_warps = min(32, max(NUM_WARPS, block_n // MAX_COLS_PER_WARP))
    layer_norm_kernel[(rows.shape[0],)](
        rows,
        weight.contiguous(),
        bias.contiguous(),
        y,
        rows.stride(0),
        n_cols,
        n_cols,
        eps,
        BLOCK_N=block_n,
        num_warps=num_warps,
    )
    return y
