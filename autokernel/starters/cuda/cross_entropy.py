"""Starter: cross entropy of logits against class targets, averaged over the rows that count, in CUDA C++.

    loss = mean over targets[n] != -100 of log(sum(exp(logits[n, :]))) - logits[n, targets[n]]

Cost: 4 FLOP and itemsize bytes per logit: 2 FLOP/byte in float16, far below any ridge point.
Plan: one block per row: its maximum, then the sum of its exponentials; a second kernel, one block, adds up the
    losses of the rows in a fixed order and divides by how many count.
Limit: the logits are read twice (the second time from L2 at best), one per load.
Try first: BLOCK_SIZE by V; maximum and sum in one pass; 16-byte loads where the row is aligned.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "cross_entropy"
BACKEND = "cuda"

BLOCK_SIZE = 256  # threads per row, a multiple of 32

CUDA_SRC = r"""
constexpr int64_t IGNORED = -100;

struct Sum { __device__ static float of(float a, float b) { return a + b; } };
struct Max { __device__ static float of(float a, float b) { return fmaxf(a, b); } };

template <typename Combine> __device__ float block_reduce(float value, float* partial) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = Combine::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < BLOCK_SIZE / 32; ++warp) value = Combine::of(value, partial[warp]);
    return value;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE)
row_loss(const T* logits, const int64_t* targets, float* losses, int64_t n_classes) {
    __shared__ float of_max[BLOCK_SIZE / 32], of_sum[BLOCK_SIZE / 32];  // two, so that none is reused too early
    const T* row = logits + blockIdx.x * n_classes;  // 64-bit: 16384 rows of 131072 classes pass 2**31
    const int64_t target = targets[blockIdx.x];
    if (target == IGNORED) {  // the whole block leaves
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0f;
        return;
    }

    float largest = -INFINITY;
    for (int64_t col = threadIdx.x; col < n_classes; col += BLOCK_SIZE) largest = fmaxf(largest, to_float(row[col]));
    largest = block_reduce<Max>(largest, of_max);

    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < n_classes; col += BLOCK_SIZE) sum += expf(to_float(row[col]) - largest);
    sum = block_reduce<Sum>(sum, of_sum);

    if (threadIdx.x == 0) {
        const bool is_class = target >= 0 && target < n_classes;
        losses[blockIdx.x] = is_class ? logf(sum) + (largest - to_float(row[target])) : NAN;
    }
}

__global__ void __launch_bounds__(BLOCK_SIZE)
mean_loss(const float* losses, const int64_t* targets, float* loss, int64_t n_rows) {
    __shared__ double sums[BLOCK_SIZE];
    __shared__ int64_t counts[BLOCK_SIZE];
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t row = threadIdx.x; row < n_rows; row += BLOCK_SIZE) {
        sum += losses[row];
        count += targets[row] != IGNORED;
    }
    sums[threadIdx.x] = sum;
    counts[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int thread = 1; thread < BLOCK_SIZE; ++thread) {
        sum += sums[thread];
        count += counts[thread];
    }
    *loss = float(sum / count);  // 0 / 0, NaN, if no row counts
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE})
row_loss = MODULE.kernel("row_loss<T>", "T*", "int64*", "float32*", "int64")
mean_loss = MODULE.kernel("mean_loss", "float32*", "int64*", "float32*", "int64")


def kernel_fn(logits, targets):
    logits, targets = logits.contiguous(), targets.contiguous()
    n_rows, n_classes = logits.shape
    losses = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    loss = torch.empty((), dtype=torch.float32, device=logits.device)
    if n_rows > 0:
        row_loss[n_rows, BLOCK_SIZE](logits, targets, losses, n_classes)
    mean_loss[1, BLOCK_SIZE](losses, targets, loss, n_rows)
    return loss
