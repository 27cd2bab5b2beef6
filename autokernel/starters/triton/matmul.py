"""Starter: matrix product.

    C[m, n] = sum over k of A[m, k] * B[k, n]

Cost: 2 * M * N * K FLOP for itemsize * (M*K + K*N + M*N) bytes: past any ridge point for large sizes.
Plan: one program per tile of C walks along K and adds up in float32.  Programs are numbered in groups of GROUP_M
    rows of tiles, so that those running at one time share tiles of A and B in the L2.
Limit: every load is masked; one tile size for all shapes; few tiles leave processors idle.
Try first: BLOCK_M, BLOCK_N, BLOCK_K, NUM_WARPS and NUM_STAGES; no K mask where BLOCK_K divides K; a persistent grid;
    several programs along K, added up by a second kernel, where M * N is small.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "matmul"
BACKEND = "triton"

BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 64
GROUP_M = 8
NUM_WARPS = 8
NUM_STAGES = 3


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_m = pid // (GROUP_M * tiles_n) * GROUP_M
    group_size = tl.minimum(tl.cdiv(M, BLOCK_M) - first_m, GROUP_M)  # the last group may be smaller
    pid_m = first_m + pid % (GROUP_M * tiles_n) % group_size
    pid_n = pid % (GROUP_M * tiles_n) // group_size

    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)  # int64: row * stride can pass 2**31
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (start + offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(start + offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")  # float32 operands stay float32, not TF32
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def kernel_fn(A, B):
    M, K = A.shape
    N = B.shape[1]
    C = torch.empty((M, N), device=A.device, dtype=A.dtype)

    block_k = BLOCK_K * 2 // A.element_size()  # a tile has the same bytes in float32
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    matmul_kernel[grid](
        A, B, C, M, N, K, A.stride(0), A.stride(1), B.stride(0), B.stride(1), C.stride(0),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=block_k, GROUP_M=GROUP_M, num_warps=NUM_WARPS, num_stages=NUM_STAGES,
    )  # fmt: skip
    return C
