"""Tuned: cross entropy of logits against class targets, averaged over the rows that count, for Hopper, in CUDA C++.

    loss = mean over targets[n] != -100 of log(sum(exp(logits[n, :]))) - logits[n, targets[n]]

Cost: 4 FLOP and itemsize bytes per logit: 2 FLOP/byte in float16, far below any ridge point.
Plan: one read.  A group of threads for each row; each thread keeps a maximum and a sum of its own over DEPTH vectors of
    16 bytes at a time, so that there is little more than one exp for a logit, and the group combines them once.
    Rows that do not start on 16 bytes are taken in vectors from their first aligned element on, and a few threads
    take a single element besides.  A second kernel, of one block, adds up the rows' losses in a fixed order.
Limit: few rows leave processors idle.
Try first: MOST_THREADS, DEPTH, THREAD_VECTORS for few classes, STREAM.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "cross_entropy"
BACKEND = "cuda"

MOST_THREADS = 256  # on one row; one of 64, 128, 256, 512, 1024
THREAD_VECTORS = 4  # least vectors of a thread; one of 1, 2, 4, 8
BLOCK_SIZE = 128  # least threads of a block; one of 64, 128, 256
DEPTH = 4  # vectors that a thread loads at a time; one of 1, 2, 4, 8
STREAM = True  # whether the logits are marked as not used again
MEAN_BLOCK = 1024  # threads that add up the losses; one of 256, 512, 1024

CUDA_SRC = r"""
struct Sum { __device__ static float of(float a, float b) { return a + b; } };
struct Max { __device__ static float of(float a, float b) { return fmaxf(a, b); } };

// Over the `group` threads of a row, a power of two; `partial` has a place for each warp of the block.
template <typename Combine> __device__ float reduce_group(float value, int group, float* partial) {
    for (int offset = min(group, 32) / 2; offset > 0; offset /= 2)
        value = Combine::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (group <= 32) return value;
    const int warp = threadIdx.x / 32, first = warp & ~(group / 32 - 1);
    if (threadIdx.x % 32 == 0) partial[warp] = value;
    __syncthreads();
    value = partial[first];
    for (int i = 1; i < group / 32; ++i) value = Combine::of(value, partial[first + i]);
    return value;
}

// A row as whole vectors of 16 bytes, which start at element `head`, and single elements before and after them.
template <typename T> struct Row {
    static constexpr int WIDTH = 16 / sizeof(T);
    int64_t begin;
    int head, vectors, tail;
    __device__ Row(int64_t first, int n_cols) : begin(first) {
        head = min(int((WIDTH - begin % WIDTH) % WIDTH), n_cols);
        vectors = (n_cols - head) / WIDTH;
        tail = n_cols - head - vectors * WIDTH;
    }
    // The single element that thread `lane` takes, or -1; there are fewer than 2 * WIDTH of them.
    __device__ int single(int lane) const {
        return lane < head ? lane : lane < head + tail ? vectors * WIDTH + lane : -1;
    }
};

template <typename T> __device__ __forceinline__ uint4 load(const T* x, const Row<T>& row, int vector) {
    const uint4* place = reinterpret_cast<const uint4*>(x + row.begin + row.head) + vector;
    return STREAM ? __ldcs(place) : *place;
}
template <typename T> __device__ __forceinline__ float at(const uint4& raw, int i) {
    return to_float(reinterpret_cast<const T*>(&raw)[i]);
}

constexpr int64_t IGNORED = -100;

template <typename T, int COUNT>
__device__ __forceinline__ void include(const uint4 (&raw)[COUNT], float& largest, float& sum) {
    float of_these = largest;
    for (int v = 0; v < COUNT; ++v)
        for (int i = 0; i < Row<T>::WIDTH; ++i) of_these = fmaxf(of_these, at<T>(raw[v], i));
    const float shift = of_these == -INFINITY ? 0.0f : of_these;  // -inf so far: avoid inf - inf
    sum *= __expf(largest - shift);
    for (int v = 0; v < COUNT; ++v)
        for (int i = 0; i < Row<T>::WIDTH; ++i) sum += __expf(at<T>(raw[v], i) - shift);
    largest = of_these;
}

template <typename T> __global__ void __launch_bounds__(1024)
row_loss(const T* logits, const int64_t* targets, float* losses, int64_t n_rows, int n_classes, int group) {
    __shared__ float of_max[32], of_sum[32];  // two, so that none is reused too early
    const int lane = threadIdx.x & (group - 1);
    const int64_t index = int64_t(blockIdx.x) * (blockDim.x / group) + threadIdx.x / group;
    const int64_t target = index < n_rows ? targets[index] : IGNORED;
    const Row<T> row(index * n_classes, target == IGNORED ? 0 : n_classes);  // a row that does not count is not read
    const int single = row.single(lane);

    float largest = single >= 0 ? to_float(logits[row.begin + single]) : -INFINITY;
    float sum = largest == -INFINITY ? 0.0f : 1.0f;
    int vector = lane;
    for (; vector + (DEPTH - 1) * group < row.vectors; vector += DEPTH * group) {
        uint4 raw[DEPTH];
        for (int v = 0; v < DEPTH; ++v) raw[v] = load(logits, row, vector + v * group);
        include<T>(raw, largest, sum);
    }
    for (; vector < row.vectors; vector += group) {
        const uint4 raw[1] = {load(logits, row, vector)};
        include<T>(raw, largest, sum);
    }
    const float overall = reduce_group<Max>(largest, group, of_max);
    sum = reduce_group<Sum>(largest == -INFINITY ? 0.0f : sum * __expf(largest - overall), group, of_sum);

    if (lane == 0 && index < n_rows) {
        const bool is_class = target >= 0 && target < n_classes;
        const float loss = is_class ? logf(sum) + (overall - to_float(logits[row.begin + target])) : NAN;
        losses[index] = target == IGNORED ? 0.0f : loss;
    }
}

__global__ void __launch_bounds__(1024)
mean_loss(const float* losses, const int64_t* targets, float* loss, int n_rows) {
    __shared__ float of_sum[32], of_count[32];
    float sum = 0.0f, count = 0.0f;
#pragma unroll 4
    for (int row = threadIdx.x; row < n_rows; row += blockDim.x) {
        sum += losses[row];
        count += targets[row] != IGNORED ? 1.0f : 0.0f;
    }
    sum = reduce_group<Sum>(sum, blockDim.x, of_sum);
    count = reduce_group<Sum>(count, blockDim.x, of_count);  // exact up to 2**24 rows for a thread
    if (threadIdx.x == 0) *loss = sum / count;  // 0 / 0, NaN, if no row counts
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"STREAM": STREAM, "DEPTH": DEPTH})
row_loss = MODULE.kernel("row_loss<T>", "T*", "int64*", "float32*", "int64", "int32", "int32")
mean_loss = MODULE.kernel("mean_loss", "float32*", "int64*", "float32*", "int32")


def power_of_two(number):
    return 1 << max(0, number - 1).bit_length()


def kernel_fn(logits, targets):
    logits, targets = logits.contiguous(), targets.contiguous()
    if logits.data_ptr() % 16 != 0:
        logits = logits.clone()
    n_rows, n_classes = logits.shape
    losses = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    loss = torch.empty((), dtype=torch.float32, device=logits.device)
    if n_rows > 0:
        vectors = -(-n_classes * logits.element_size() // 16)
        group = min(MOST_THREADS, max(16, power_of_two(-(-vectors // THREAD_VECTORS))))
        block = max(group, BLOCK_SIZE)
        row_loss[-(-n_rows * group // block), block](logits, targets, losses, n_rows, n_classes, group)
    mean_loss[1, MEAN_BLOCK](losses, targets, loss, n_rows)
    return loss
