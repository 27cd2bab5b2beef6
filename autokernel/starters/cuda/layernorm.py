"""Starter: layer normalisation over the last axis, in CUDA C++.

    y[m, n] = (x[m, n] - mean(x[m, :])) / sqrt(var(x[m, :]) + eps) * weight[n] + bias[n]

Cost: 8 FLOP and 2 * itemsize bytes per element: 2 FLOP/byte in float16, far below any ridge point.
Plan: one block per row, three passes over it: the mean, the variance around it, y; all sums in float32.
Limit: x is read three times (from L2 at best after the first), one element per load.
Try first: BLOCK_SIZE by N; a row that fits kept in registers or shared memory; 16-byte loads where the row is
    aligned.  E[x**2] - E[x]**2 saves a pass, but cancels where the mean is large.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "layernorm"
BACKEND = "cuda"

BLOCK_SIZE = 128  # threads per row, a multiple of 32

CUDA_SRC = r"""
__device__ float block_sum(float value, float* partial) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < BLOCK_SIZE / 32; ++warp) sum += partial[warp];  // in the same order in every thread
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE)
layer_norm(const T* x, const T* weight, const T* bias, T* y, int64_t n_cols, float eps) {
    __shared__ float of_mean[BLOCK_SIZE / 32], of_variance[BLOCK_SIZE / 32];  // two, so that none is reused too early
    const T* x_row = x + blockIdx.x * n_cols;  // 64-bit: row * n_cols can pass 2**31
    T* y_row = y + blockIdx.x * n_cols;

    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += BLOCK_SIZE) sum += to_float(x_row[col]);
    const float mean = block_sum(sum, of_mean) / n_cols;

    float squares = 0.0f;
    for (int64_t col = threadIdx.x; col < n_cols; col += BLOCK_SIZE) {
        const float centred = to_float(x_row[col]) - mean;
        squares += centred * centred;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, of_variance) / n_cols + eps);

    for (int64_t col = threadIdx.x; col < n_cols; col += BLOCK_SIZE)
        y_row[col] = from_float<T>((to_float(x_row[col]) - mean) * scale * to_float(weight[col]) + to_float(bias[col]));
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE})
layer_norm = MODULE.kernel("layer_norm<T>", "T*", "T*", "T*", "T*", "int64", "float32")


def kernel_fn(x, weight, bias, eps=1e-5):
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        layer_norm[x.numel() // n_cols, BLOCK_SIZE](x, weight, bias, y, n_cols, eps)
    return y
