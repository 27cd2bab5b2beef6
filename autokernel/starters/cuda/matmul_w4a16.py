"""Starter: product of half-width activations with 4-bit weights, in CUDA C++.

    y[m, n] = sum over k of x[m, k] * (q[n, k] - zero[n, k // G]) * scale[n, k // G]

Cost: 2 * M * N * K FLOP; N*K/2 bytes of weights, which are the bound for few rows of x.
Plan: one warp per column n and TILE_M rows of x walks along K, a byte (two weights) per thread at a time; its threads'
    float32 sums are added up at the end.  The weights are read M / TILE_M times.
Limit: float32 multiply-adds, no tensor cores: for few rows only.  One byte per load.
Try first: 4- and 16-byte loads of the weights; TILE_M by M; x in shared memory; tensor cores (mma.h) for large M.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "matmul_w4a16"
BACKEND = "cuda"

BLOCK_SIZE = 128  # threads, a multiple of 32; one column for each 32
TILE_M = 8  # rows of x per warp

CUDA_SRC = r"""
template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE)
matmul_w4a16(const T* x, const uint8_t* packed, const T* scale, const uint8_t* zero, T* y,
             int64_t M, int64_t N, int64_t K, int64_t n_groups) {
    const int64_t n_tiles_n = (N + BLOCK_SIZE / 32 - 1) / (BLOCK_SIZE / 32);
    const int64_t n = blockIdx.x % n_tiles_n * (BLOCK_SIZE / 32) + threadIdx.x / 32;
    const int64_t first_m = blockIdx.x / n_tiles_n * TILE_M;
    if (n >= N) return;  // a whole warp leaves; nothing below waits for the block

    const int64_t group_size = K / n_groups;
    float acc[TILE_M] = {};
    for (int64_t i = threadIdx.x % 32; i < K / 2; i += 32) {
        const int64_t group = n * n_groups + 2 * i / group_size;  // both weights of a byte are in one group
        const float step = to_float(scale[group]), offset = zero[group];
        const uint8_t byte = packed[n * (K / 2) + i];
        const float low = (float(byte & 15) - offset) * step, high = (float(byte >> 4) - offset) * step;
        for (int row = 0; row < TILE_M; ++row) {
            if (first_m + row >= M) break;
            const T* pair = x + (first_m + row) * K + 2 * i;
            acc[row] += to_float(pair[0]) * low + to_float(pair[1]) * high;
        }
    }

    for (int row = 0; row < TILE_M; ++row) {
        for (int step = 16; step > 0; step /= 2) acc[row] += __shfl_xor_sync(0xffffffffu, acc[row], step);
        if (threadIdx.x % 32 == 0 && first_m + row < M) y[(first_m + row) * N + n] = from_float<T>(acc[row]);
    }
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE, "TILE_M": TILE_M})
matmul_w4a16 = MODULE.kernel(
    "matmul_w4a16<T>", "T*", "uint8*", "T*", "uint8*", "T*", "int64", "int64", "int64", "int64"
)


def kernel_fn(x, packed, scale, zero):
    x, packed, scale, zero = x.contiguous(), packed.contiguous(), scale.contiguous(), zero.contiguous()
    M, K = x.shape
    N, n_groups = scale.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if y.numel() > 0:
        n_blocks = -(-M // TILE_M) * -(-N // (BLOCK_SIZE // 32))
        matmul_w4a16[n_blocks, BLOCK_SIZE](x, packed, scale, zero, y, M, N, K, n_groups)
    return y
