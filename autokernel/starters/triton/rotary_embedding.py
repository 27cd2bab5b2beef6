"""Starter: rotary position embedding, of neighbours or of halves.

    y[..., j] = x[..., j] * cos[s, i] - x[..., k] * sin[s, i]
    y[..., k] = x[..., j] * sin[s, i] + x[..., k] * cos[s, i]
    with (j, k) = (2i, 2i + 1), or (i, i + D/2) if not interleaved

Cost: 3 FLOP and 2 * itemsize bytes per element: 0.75 FLOP/byte in float16, far below any ridge point.
Plan: one program per BLOCK_S positions of one head.  Of neighbours it loads whole rows, so neighbouring lanes read
    neighbouring addresses, and takes the pairs apart in registers; halves are loaded and stored apart.
Limit: D is padded to a power of two; the tables are read again for every head.
Try first: BLOCK_S and NUM_WARPS; several heads per program, so that a program reads its part of the tables once.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "rotary_embedding"
BACKEND = "triton"

BLOCK_S = 16
NUM_WARPS = 4


@triton.jit
def rotary_kernel(
    x_ptr, cos_ptr, sin_ptr, y_ptr, stride_b, stride_h, stride_s, stride_d, H, S, HALF,
    INTERLEAVED: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)  # int64: head * stride can pass 2**31
    offs_s = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    offs_half = tl.arange(0, BLOCK_HALF)
    mask_half = (offs_s[:, None] < S) & (offs_half[None, :] < HALF)

    x_ptrs = x_ptr + (head // H) * stride_b + (head % H) * stride_h + offs_s[:, None] * stride_s
    y_ptrs = y_ptr + (head * S + offs_s[:, None]) * (2 * HALF)
    cos = tl.load(cos_ptr + offs_s[:, None] * HALF + offs_half[None, :], mask=mask_half, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + offs_s[:, None] * HALF + offs_half[None, :], mask=mask_half, other=0.0).to(tl.float32)

    if INTERLEAVED:
        offs_d = tl.arange(0, 2 * BLOCK_HALF)
        mask = (offs_s[:, None] < S) & (offs_d[None, :] < 2 * HALF)
        x = tl.load(x_ptrs + offs_d[None, :] * stride_d, mask=mask, other=0.0).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BLOCK_S, BLOCK_HALF, 2)))
        y = tl.interleave(even * cos - odd * sin, even * sin + odd * cos)
        tl.store(y_ptrs + offs_d[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)
    else:
        x_ptrs += offs_half[None, :] * stride_d
        y_ptrs += offs_half[None, :]
        first = tl.load(x_ptrs, mask=mask_half, other=0.0).to(tl.float32)
        second = tl.load(x_ptrs + HALF * stride_d, mask=mask_half, other=0.0).to(tl.float32)
        tl.store(y_ptrs, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=mask_half)
        tl.store(y_ptrs + HALF, (first * sin + second * cos).to(y_ptr.dtype.element_ty), mask=mask_half)


def kernel_fn(x, cos, sin, interleaved=True):
    B, H, S, D = x.shape
    y = torch.empty((B, H, S, D), device=x.device, dtype=x.dtype)

    grid = (triton.cdiv(S, BLOCK_S), B * H)
    rotary_kernel[grid](
        x, cos.contiguous(), sin.contiguous(), y, *x.stride(), H, S, D // 2,
        INTERLEAVED=interleaved, BLOCK_S=BLOCK_S, BLOCK_HALF=triton.next_power_of_2(D // 2), num_warps=NUM_WARPS,
    )  # fmt: skip
    return y
