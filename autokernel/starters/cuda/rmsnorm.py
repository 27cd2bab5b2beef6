"""Starter: root-mean-square normalisation over the last axis, in CUDA C++.

    y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]

Cost: 4 FLOP and 2 * itemsize bytes per element: 1 FLOP/byte in float16, far below any ridge point.
Plan: one block per row; a first pass sums the squares in float32, a second one writes.
Limit: x is read twice (the second time from L2 at best), one element per thread at a time.
Try first: BLOCK_SIZE by N; 16-byte loads where the row is aligned; keeping the row in registers.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "rmsnorm"
BACKEND = "cuda"

BLOCK_SIZE = 128  # threads per row, a multiple of 32

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
__global__ void __launch_bounds__(BLOCK_SIZE)
rms_norm(const T* x, const T* weight, T* y, int64_t n_cols, float eps) {
    const T* x_row = x + blockIdx.x * n_cols;  // 64-bit: row * n_cols can pass 2**31
    T* y_row = y + blockIdx.x * n_cols;

    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += BLOCK_SIZE) {
        const float value = to_float(x_row[col]);
        sum += value * value;
    }
    const float scale = 1.0f / sqrtf(block_sum(sum) / n_cols + eps);

    for (int64_t col = threadIdx.x; col < n_cols; col += BLOCK_SIZE)
        y_row[col] = from_float<T>(to_float(x_row[col]) * scale * to_float(weight[col]));  // rounded once
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE})
rms_norm = MODULE.kernel("rms_norm<T>", "T*", "T*", "T*", "int64", "float32")


def kernel_fn(x, weight, eps=1e-6):
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        rms_norm[x.numel() // n_cols, BLOCK_SIZE](x, weight, y, n_cols, eps)
    return y
