"""Starter: product of float8 matrices with a scale for each row of either.

    C[m, n] = scale_a[m] * scale_b[n] * sum over k of A[m, k] * B[n, k]

Cost: 2 * M * N * K FLOP for M*K + N*K + 2*M*N bytes and the scales: compute is the bound for large sizes.
Plan: one program per tile of C walks along K, in groups of GROUP_M rows of tiles as `matmul` does.  The sum leaves
    the matrix units for float32 after each BLOCK_K terms: Hopper's keep only some 14 bits of it.
Limit: every load is masked; one tile size for all shapes; needs matrix units for float8 (compute capability 8.9).
Try first: BLOCK_M, BLOCK_N, NUM_WARPS and NUM_STAGES (BLOCK_K stays at 128 or less); no K mask where BLOCK_K divides K;
    loads by tensor descriptor; a persistent grid; several programs along K where M is small.
"""

import torch
import triton
import triton.language as tl

KERNEL_TYPE = "matmul_fp8"
BACKEND = "triton"

BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 128  # one of 32, 64, 128
GROUP_M = 8
NUM_WARPS = 8
NUM_STAGES = 3


@triton.jit
def matmul_fp8_kernel(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bn, stride_bk, stride_cm,
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
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=BLOCK_K)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    scale_a = tl.load(scale_a_ptr + offs_m, mask=offs_m < M, other=0.0)
    scale_b = tl.load(scale_b_ptr + offs_n, mask=offs_n < N, other=0.0)
    c = acc * scale_a[:, None] * scale_b[None, :]
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, c.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def kernel_fn(A, B, scale_a, scale_b, out_dtype="bfloat16"):
    M, K = A.shape
    N = B.shape[0]
    C = torch.empty((M, N), device=A.device, dtype=getattr(torch, out_dtype))

    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    matmul_fp8_kernel[grid](
        A, B, scale_a.contiguous(), scale_b.contiguous(), C,
        M, N, K, A.stride(0), A.stride(1), B.stride(0), B.stride(1), C.stride(0),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M, num_warps=NUM_WARPS, num_stages=NUM_STAGES,
    )  # fmt: skip
    return C
