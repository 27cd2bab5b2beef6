"""Starter: sum over the last axis, in CUDA C++.

    y[m] = sum(x[m, :])

Cost: 1 FLOP and itemsize bytes per element: 0.5 FLOP/byte in float16, far below any ridge point.
Plan: one block per row; each thread adds up every BLOCK_SIZE-th element in float32, then the block its threads.
Limit: one element per load; a short row leaves most threads idle.
Try first: BLOCK_SIZE by N; UNROLL loads in flight; 16-byte loads where the row is aligned; one warp per row for
    small N; several blocks per row, and a second kernel that adds their parts in a fixed order, when rows are few.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "reduce"
BACKEND = "cuda"

BLOCK_SIZE = 128  # threads per row, a multiple of 32
UNROLL = 1  # partial sums per thread

CUDA_SRC = r"""
__device__ float block_sum(float value) {
    __shared__ float partial[BLOCK_SIZE / 32];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < BLOCK_SIZE / 32; ++warp) sum += partial[warp];  // in the same order in every thread
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE) row_sum(const T* x, T* y, int64_t n_cols) {
    const T* x_row = x + blockIdx.x * n_cols;  // 64-bit: row * n_cols can pass 2**31

    float partial[UNROLL] = {};
    int64_t col = threadIdx.x;
    for (; col + (UNROLL - 1) * BLOCK_SIZE < n_cols; col += UNROLL * BLOCK_SIZE)
        for (int i = 0; i < UNROLL; ++i) partial[i] += to_float(x_row[col + i * BLOCK_SIZE]);
    for (; col < n_cols; col += BLOCK_SIZE) partial[0] += to_float(x_row[col]);

    float sum = 0.0f;
    for (int i = 0; i < UNROLL; ++i) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = from_float<T>(sum);
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE, "UNROLL": UNROLL})
row_sum = MODULE.kernel("row_sum<T>", "T*", "T*", "int64")


def kernel_fn(x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    if y.numel() > 0:
        row_sum[y.numel(), BLOCK_SIZE](x, y, x.shape[-1])
    return y
