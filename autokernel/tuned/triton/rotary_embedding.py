"""Tuned: rotary position embedding, interleaved pairs, for Hopper.

    y[..., 2i]     = x[..., 2i] * cos[s, i] - x[..., 2i + 1] * sin[s, i]
    y[..., 2i + 1] = x[..., 2i] * sin[s, i] + x[..., 2i + 1] * cos[s, i]

Cost: 3 FLOP and 2 * itemsize bytes per element: 0.75 FLOP/byte in float16, far below any ridge point.
Plan: one program per BLOCK_S positions of up to HEADS heads.  It reads its part of the tables once and keeps it in
    registers; whole rows are loaded by vectors, and pairs taken apart in registers.
Limit: D is padded to a power of two; a view without unit stride along D is read by elements.
Try first: TILE, HEADS and THREAD_ELEMENTS.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "rotary_embedding"
BACKEND = "triton"

TILE = 2048  # elements of x at a time; tune: 512, 1024, 2048, 4096, 8192
HEADS = 4  # heads that a program goes through; tune: 1, 2, 4, 8, 16
THREAD_ELEMENTS = 16  # elements of a thread; tune: 8, 16, 32
EVICTION = ""  # of x; tune: "", evict_first


@triton.jit
def rotary_kernel(
    x_ptr, cos_ptr, sin_ptr, y_ptr, stride_b, stride_h, stride_s, stride_d, n_heads, H, S, HALF: tl.constexpr,
    UNIT: tl.constexpr, VECTOR: tl.constexpr, HEADS: tl.constexpr, EVICTION: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
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
        here = mask & (head < n_heads)
        place = (head // H) * stride_b + (head % H) * stride_h
        x = tl.load(
            x_ptr + place + offs_s * stride_s + offs_d * stride_d, mask=here, other=0.0, eviction_policy=EVICTION
        ).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BLOCK_S, BLOCK_HALF, 2)))
        y = tl.interleave(even * cos - odd * sin, even * sin + odd * cos)
        tl.store(y_ptr + (head * S + offs_s) * (2 * HALF) + offs_d, y.to(y_ptr.dtype.element_ty), mask=here)


def kernel_fn(x, cos, sin):
    B, H, S, D = x.shape
    y = torch.empty((B, H, S, D), device=x.device, dtype=x.dtype)
    vector = 16 // x.element_size()
    unit = x.stride(3) == 1 and all(stride % vector == 0 for stride in x.stride()[:3])

    block_half = triton.next_power_of_2(D // 2)
    block_s = max(1, min(TILE // (2 * block_half), triton.next_power_of_2(S)))
    rotary_kernel[(triton.cdiv(S, block_s), triton.cdiv(B * H, HEADS))](
        x, cos.contiguous(), sin.contiguous(), y, *x.stride(), B * H, H, S, HALF=D // 2, UNIT=unit, VECTOR=vector,
        HEADS=HEADS, EVICTION=EVICTION, BLOCK_S=block_s, BLOCK_HALF=block_half,
        num_warps=max(1, min(16, 2 * block_s * block_half // (32 * THREAD_ELEMENTS))),
    )  # fmt: skip
    return y
