"""Starter: sum of one long vector, in CUDA C++.

    y = sum(x)

Cost: 1 FLOP and itemsize bytes per element, so memory bandwidth is the bound.
Plan: MOST_BLOCKS blocks walk over x together; each thread adds up in float32, then the block its threads, and leaves
    one number; a second launch adds these up, in the same order each time (an atomic addition would not).
Limit: two launches; one element per load; few elements leave most processors idle.
Try first: 16-byte loads where x is aligned; UNROLL loads in flight; MOST_BLOCKS as a multiple of the processors.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "vectorsum"
BACKEND = "cuda"

BLOCK_SIZE = 256  # threads, a multiple of 32
MOST_BLOCKS = 1024  # tune: 256, 512, 1024, 2048
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
__global__ void __launch_bounds__(BLOCK_SIZE) part_sum(const T* x, float* parts, int64_t n) {
    const int64_t step = int64_t(gridDim.x) * BLOCK_SIZE;
    float partial[UNROLL] = {};
    int64_t i = int64_t(blockIdx.x) * BLOCK_SIZE + threadIdx.x;
    for (; i + (UNROLL - 1) * step < n; i += UNROLL * step)
        for (int j = 0; j < UNROLL; ++j) partial[j] += to_float(x[i + j * step]);
    for (; i < n; i += step) partial[0] += to_float(x[i]);

    float sum = 0.0f;
    for (int j = 0; j < UNROLL; ++j) sum += partial[j];
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE, "UNROLL": UNROLL})
part_sum = MODULE.kernel("part_sum<T>", "T*", "float32*", "int64")


def kernel_fn(x):
    x = x.contiguous()
    blocks = min(MOST_BLOCKS, -(-x.numel() // BLOCK_SIZE))
    parts = torch.empty(blocks, dtype=torch.float32, device=x.device)
    y = torch.empty((), dtype=torch.float32, device=x.device)
    part_sum[blocks, BLOCK_SIZE](x, parts, x.numel())
    part_sum[1, BLOCK_SIZE](parts, y, blocks)
    return y
