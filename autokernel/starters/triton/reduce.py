"""Starter: sum over the last axis.

    y[m] = sum(x[m, :])

Cost: 1 FLOP and itemsize bytes per element: 0.5 FLOP/byte in float16, far below any ridge point.
Plan: one program per row walks over its tiles, one float32 partial sum per lane; the lanes are added up at the end.
Limit: a short row leaves most lanes idle; a view without unit stride along N is copied first.
Try first: BLOCK_N and NUM_WARPS by N; several rows per program for small N; several programs per row, and a second
    kernel that adds their parts in a fixed order, when rows are few.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "reduce"
BACKEND = "triton"

BLOCK_N = 2048
NUM_WARPS = 4


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, stride_x, n_cols, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # int64: row * stride can pass 2**31
    x_ptr += row * stride_x
    cols = tl.arange(0, BLOCK_N)

    partial = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        partial += tl.load(x_ptr + start + cols, mask=start + cols < n_cols, other=0.0).to(tl.float32)

    tl.store(y_ptr + row, tl.sum(partial, axis=0).to(y_ptr.dtype.element_ty))


def kernel_fn(x):
    n_cols = x.shape[-1]
    rows = x.reshape(-1, n_cols)
    if rows.stride(-1) != 1:
        rows = rows.contiguous()
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)

    block_n = min(BLOCK_N, triton.next_power_of_2(n_cols))
    row_sum_kernel[(rows.shape[0],)](rows, y, rows.stride(0), n_cols, BLOCK_N=block_n, num_warps=NUM_WARPS)
    return y
