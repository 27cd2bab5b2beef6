"""Starter: product of float8 matrices with a scale for each row of either, in CUDA C++.

    C[m, n] = scale_a[m] * scale_b[n] * sum over k of A[m, k] * B[n, k]

Cost: 2 * M * N * K FLOP; for large sizes compute is the bound.
Plan: one block per tile of C, TILE_M x TILE_N; it walks along K in steps of TILE_K, with both tiles in shared
    memory as float32; each thread adds up THREAD_M x THREAD_N elements in registers, in the order of k.
Limit: float32 multiply-adds, no tensor cores: a small part of the float8 rate of an H100.
Try first: the matrix units, by wgmma with float8 operands (compute capability 9.0a), the sum taken out of them every
    128 terms; tiles copied by TMA.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "matmul_fp8"
BACKEND = "cuda"

TILE_M = 64
TILE_N = 64
TILE_K = 16
THREAD_M = 4  # elements of C per thread, down; divides TILE_M
THREAD_N = 4  # and across; divides TILE_N
BLOCK_SIZE = (TILE_M // THREAD_M) * (TILE_N // THREAD_N)

CUDA_SRC = r"""
#include <cuda_fp8.h>

__device__ float from_e4m3(uint8_t bits) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3))); }

template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE)
matmul_fp8(const uint8_t* A, const uint8_t* B, const float* scale_a, const float* scale_b, T* C,
           int64_t M, int64_t N, int64_t K) {
    __shared__ float a_tile[TILE_K][TILE_M + 1];  // + 1: threads that write a column use different banks
    __shared__ float b_tile[TILE_K][TILE_N + 1];
    constexpr int COLUMNS = TILE_N / THREAD_N, ROWS = TILE_M / THREAD_M;

    const int64_t n_tiles_n = (N + TILE_N - 1) / TILE_N;
    const int64_t first_m = blockIdx.x / n_tiles_n * TILE_M, first_n = blockIdx.x % n_tiles_n * TILE_N;
    const int row = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;

    float acc[THREAD_M][THREAD_N] = {};
    for (int64_t first_k = 0; first_k < K; first_k += TILE_K) {
        for (int i = threadIdx.x; i < TILE_M * TILE_K; i += BLOCK_SIZE) {
            const int64_t m = first_m + i / TILE_K, k = first_k + i % TILE_K;
            a_tile[i % TILE_K][i / TILE_K] = m < M && k < K ? from_e4m3(A[m * K + k]) : 0.0f;  // zeros add nothing
        }
        for (int i = threadIdx.x; i < TILE_N * TILE_K; i += BLOCK_SIZE) {
            const int64_t n = first_n + i / TILE_K, k = first_k + i % TILE_K;
            b_tile[i % TILE_K][i / TILE_K] = n < N && k < K ? from_e4m3(B[n * K + k]) : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TILE_K; ++k) {
            float a[THREAD_M], b[THREAD_N];
            for (int i = 0; i < THREAD_M; ++i) a[i] = a_tile[k][row + i * ROWS];
            for (int j = 0; j < THREAD_N; ++j) b[j] = b_tile[k][column + j * COLUMNS];
            for (int i = 0; i < THREAD_M; ++i)
                for (int j = 0; j < THREAD_N; ++j) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();  // before the tiles are overwritten
    }

    for (int i = 0; i < THREAD_M; ++i)
        for (int j = 0; j < THREAD_N; ++j) {
            const int64_t m = first_m + row + i * ROWS, n = first_n + column + j * COLUMNS;
            if (m < M && n < N) C[m * N + n] = from_float<T>(acc[i][j] * scale_a[m] * scale_b[n]);
        }
}
"""

SIZES = {"TILE_M": TILE_M, "TILE_N": TILE_N, "TILE_K": TILE_K, "THREAD_M": THREAD_M, "THREAD_N": THREAD_N}
MODULE = cuda.compile(CUDA_SRC, defines={**SIZES, "BLOCK_SIZE": BLOCK_SIZE})
matmul_fp8 = MODULE.kernel("matmul_fp8<T>", "uint8*", "uint8*", "float32*", "float32*", "T*", "int64", "int64", "int64")


def kernel_fn(A, B, scale_a, scale_b, out_dtype="bfloat16"):
    A, B = A.contiguous().view(torch.uint8), B.contiguous().view(torch.uint8)
    M, K = A.shape
    N = B.shape[0]
    C = torch.empty((M, N), dtype=getattr(torch, out_dtype), device=A.device)
    if C.numel() > 0:
        n_tiles = -(-M // TILE_M) * -(-N // TILE_N)
        matmul_fp8[n_tiles, BLOCK_SIZE](A, B, scale_a.contiguous(), scale_b.contiguous(), C, M, N, K)
    return C
