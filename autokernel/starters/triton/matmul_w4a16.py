"""Starter: product of half-width activations with 4-bit weights.

    y[m, n] = sum over k of x[m, k] * (q[n, k] - zero[n, k // G]) * scale[n, k // G]

Cost: 2 * M * N * K FLOP; N*K/2 bytes of weights, which are the bound for few rows of x.
Plan: one program per tile of y walks along K, one group of weights or a part of one at a time: takes the four bits
    out of their byte, applies zero and scale in float32, rounds to x's dtype, and multiplies on the matrix units.
Limit: each byte is loaded for both its weights; few rows leave most of a tile's rows, and of the processors, idle.
Try first: BLOCK_M by M; BLOCK_N, BLOCK_K, NUM_WARPS and NUM_STAGES; each byte loaded once, its halves put together by
    tl.interleave; several programs along K, added up by a second kernel, where M is small.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "matmul_w4a16"
BACKEND = "triton"

BLOCK_M = 16
BLOCK_N = 64
BLOCK_K = 128  # at most; a group's size if that is smaller
NUM_WARPS = 4
NUM_STAGES = 3


@triton.jit
def matmul_w4a16_kernel(
    x_ptr, packed_ptr, scale_ptr, zero_ptr, y_ptr, M, N, K, group_size, stride_xm, stride_xk,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)  # int64: row * stride can pass 2**31
    offs_n = (pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m, in_n = offs_m < M, offs_n < N
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    packed_ptrs = packed_ptr + offs_n[None, :] * (K // 2) + offs_k[:, None] // 2
    shift = (offs_k[:, None] % 2 * 4).to(tl.uint8)  # odd columns lie in the high four bits
    groups = offs_n * (K // group_size)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):  # BLOCK_K divides the group's size, and that K: nothing to mask along K
        x = tl.load(x_ptrs, mask=in_m[:, None], other=0.0)
        codes = (tl.load(packed_ptrs, mask=in_n[None, :], other=0) >> shift) & 15
        scale = tl.load(scale_ptr + groups + start // group_size, mask=in_n, other=0.0).to(tl.float32)
        zero = tl.load(zero_ptr + groups + start // group_size, mask=in_n, other=0).to(tl.float32)
        w = (codes.to(tl.float32) - zero[None, :]) * scale[None, :]
        acc = tl.dot(x, w.to(x.dtype), acc)
        x_ptrs += BLOCK_K * stride_xk
        packed_ptrs += BLOCK_K // 2

    y_ptrs = y_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def kernel_fn(x, packed, scale, zero):
    M, K = x.shape
    N = packed.shape[0]
    group_size = K // scale.shape[1]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)

    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    matmul_w4a16_kernel[grid](
        x, packed.contiguous(), scale.contiguous(), zero.contiguous(), y,
        M, N, K, group_size, x.stride(0), x.stride(1),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=min(BLOCK_K, group_size), num_warps=NUM_WARPS, num_stages=NUM_STAGES,
    )  # fmt: skip
    return y
