"""Tuned: rotary position embedding, of neighbours or of halves, for Hopper.

    y[..., j] = x[..., j] * cos[s, i] - x[..., k] * sin[s, i]
    y[..., k] = x[..., j] * sin[s, i] + x[..., k] * cos[s, i]
    with (j, k) = (2i, 2i + 1), or (i, i + D/2) if not interleaved

Cost: 3 FLOP and 2 * itemsize bytes per element: 0.75 FLOP/byte in float16, far below any ridge point.
Plan: one program per BLOCK_S positions of up to HEADS heads.  It reads its part of the tables once and keeps it in
    registers.  Of neighbours, whole rows are loaded by vectors and pairs taken apart in registers; halves are loaded
    and stored apart.
Limit: D is padded to a power of two; a view without unit stride along D is read by elements.
Try first: TILE, HEADS and THREAD_ELEMENTS.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "rotary_embedding"
BACKEND = "triton"

TILE = 2048  # elements of x at a time; one of 512, 1024, 2048, 4096, 8192
HEADS = 4  # heads that a program goes through; one of 1, 2, 4, 8, 16
THREAD_ELEMENTS = 16  # elements of a thread; one of 8, 16, 32
EVICTION = ""  # of x; one of "", evict_first


@triton.jit
def rotary_kernel(
    x_ptr, cos_ptr, sin_ptr, y_ptr, stride_b, stride_h, stride_s, stride_d, n_heads, H, S, HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr, UNIT: tl.constexpr, VECTOR: tl.constexpr, HEADS: tl.constexpr, EVICTION: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_HALF: tl.constexpr,
):  # fmt: skip
    if UNIT:  # rows without gaps between their elements, which start on whole vectors
        stride_d = 1
        stride_b = stride_b // VECTOR * VECTOR
        stride_h = stride_h // VECTOR * VECTOR
        stride_s = stride_s // VECTOR * VECTOR
    offs_s = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)[:, None]  # int64: can pass 2**31
    offs_d = tl.arange(0, 2 * BLOCK_HALF)[None, :]
    offs_half = tl.arange(0, BLOCK_HALF)[None, :]
    mask = (offs_s < S) & (offs_d < 2 * HALF)
    mask_half = (offs_s < S) & (offs_half < HALF)
    cos = tl.load(cos_ptr + offs_s * HALF + offs_half, mask=mask_half, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + offs_s * HALF + offs_half, mask=mask_half, other=0.0).to(tl.float32)

    for i in tl.static_range(HEADS):
        head = tl.program_id(1).to(tl.int64) * HEADS + i
        x_rows = x_ptr + (head // H) * stride_b + (head % H) * stride_h + offs_s * stride_s
        y_rows = y_ptr + (head * S + offs_s) * (2 * HALF)
        if INTERLEAVED:
            here = mask & (head < n_heads)
            x = tl.load(x_rows + offs_d * stride_d, mask=here, other=0.0, eviction_policy=EVICTION).to(tl.float32)
            even, odd = tl.split(tl.reshape(x, (BLOCK_S, BLOCK_HALF, 2)))
            y = tl.interleave(even * cos - odd * sin, even * sin + odd * cos)
            tl.store(y_rows + offs_d, y.to(y_ptr.dtype.element_ty), mask=here)
        else:
            here = mask_half & (head < n_heads)
            halves = x_rows + offs_half * stride_d
            first = tl.load(halves, mask=here, other=0.0, eviction_policy=EVICTION).to(tl.float32)
            second = tl.load(halves + HALF * stride_d, mask=here, other=0.0, eviction_policy=EVICTION).to(tl.float32)
            tl.store(y_rows + offs_half, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=here)
            tl.store(y_rows + offs_half + HALF, (first * sin + second * cos).to(y_ptr.dtype.element_ty), mask=here)


def kernel_fn(x, cos, sin, interleaved=True):
    B, H, S, D = x.shape
    y = torch.empty((B, H, S, D), device=x.device, dtype=x.dtype)
    vector = 16 // x.element_size()
    unit = x.stride(3) == 1 and all(stride % vector == 0 for stride in x.stride()[:3])

    block_half = triton.next_power_of_2(D // 2)
    block_s = max(1, min(TILE // (2 * block_half), triton.next_power_of_2(S)))
    rotary_kernel[(triton.cdiv(S, block_s), triton.cdiv(B * H, HEADS))](
        x, cos.contiguous(), sin.contiguous(), y, *x.stride(), B * H, H, S, HALF=D // 2,
        INTERLEAVED=interleaved, UNIT=unit, VECTOR=vector, HEADS=HEADS, EVICTION=EVICTION,
        BLOCK_S=block_s, BLOCK_HALF=block_half,
        num_warps=max(1, min(16, 2 * block_s * block_half // (32 * THREAD_ELEMENTS))),
    )  # fmt: skip
    return y
