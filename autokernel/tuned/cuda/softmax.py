"""Tuned: softmax over the last axis, for Hopper, in CUDA C++.

    y[m, n] = exp(x[m, n] - max(x[m, :])) / sum(exp(x[m, :] - max(x[m, :])))

Cost: 5 FLOP and 2 * itemsize bytes per element: about 1 FLOP/byte in float16, far below any ridge point.
Plan: a group of threads for each row, as many as leave THREAD_VECTORS vectors of 16 bytes to each, so that the row is
    read once and stays in registers; narrow rows share a block.  A row that is too long for that is copied to shared
    memory, past the registers, if it fits; a still longer one is read twice.  Rows that do not start on 16 bytes are
    taken in vectors from their first aligned element on, and a few threads take a single element besides.
Limit: a row beyond shared memory is read twice, by one block.
Try first: THREAD_VECTORS, SHARED_BLOCK, BLOCK_SIZE for narrow rows, STREAM.
"""

import functools

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "softmax"
BACKEND = "cuda"

THREAD_VECTORS = 2  # vectors of a thread; one of 1, 2, 4
BLOCK_SIZE = 128  # least threads of a block; one of 64, 128, 256, 512
STREAM = False  # whether x and y are marked as not used again
MAX_VECTORS = 4  # the largest number of vectors in registers; one of 1, 2, 4, 8
SHARED_BLOCK = 512  # threads on a row in shared memory; one of 256, 512, 1024
SHARED_BYTES = 231424  # most of a row in shared memory; one of 0, 115712, 231424

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
template <typename T> __device__ __forceinline__ void store(T* y, const Row<T>& row, int vector, const uint4& value) {
    uint4* place = reinterpret_cast<uint4*>(y + row.begin + row.head) + vector;
    if (STREAM) __stcs(place, value); else *place = value;
}
template <typename T> __device__ __forceinline__ float at(const uint4& raw, int i) {
    return to_float(reinterpret_cast<const T*>(&raw)[i]);
}
template <typename T> __device__ __forceinline__ void put(uint4& raw, int i, float value) {
    reinterpret_cast<T*>(&raw)[i] = from_float<T>(value);  // rounded once
}

// exp(x - largest): with largest finite, exp(-inf) = 0.
__device__ __forceinline__ float power(float x, float largest) { return __expf(x - largest); }

template <typename T> __device__ __forceinline__ float largest_of(const uint4& raw) {
    float largest = at<T>(raw, 0);
    for (int i = 1; i < 16 / int(sizeof(T)); ++i) largest = fmaxf(largest, at<T>(raw, i));
    return largest;
}
template <typename T> __device__ __forceinline__ float sum_of(const uint4& raw, float largest) {
    float sum = 0.0f;
    for (int i = 0; i < 16 / int(sizeof(T)); ++i) sum += power(at<T>(raw, i), largest);
    return sum;
}
template <typename T> __device__ __forceinline__ uint4 result(const uint4& raw, float largest, float scale) {
    uint4 y;
    for (int i = 0; i < 16 / int(sizeof(T)); ++i) put<T>(y, i, power(at<T>(raw, i), largest) * scale);
    return y;
}

template <typename T, int V> __global__ void __launch_bounds__(1024)
softmax(const T* x, T* y, int64_t n_rows, int n_cols, int group) {
    __shared__ float of_max[32], of_sum[32];  // two, so that none is reused too early
    const int lane = threadIdx.x & (group - 1);
    const int64_t index = int64_t(blockIdx.x) * (blockDim.x / group) + threadIdx.x / group;
    const Row<T> row(index * n_cols, index < n_rows ? n_cols : 0);  // a row that is not there has no elements
    const int single = row.single(lane);

    uint4 raw[V];
    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors) raw[v] = load(x, row, lane + v * group);
    const float alone = single >= 0 ? to_float(x[row.begin + single]) : -INFINITY;
    float largest = alone;
    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors) largest = fmaxf(largest, largest_of<T>(raw[v]));
    largest = reduce_group<Max>(largest, group, of_max);

    float sum = single >= 0 ? power(alone, largest) : 0.0f;
    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors) sum += sum_of<T>(raw[v], largest);
    const float scale = 1.0f / reduce_group<Sum>(sum, group, of_sum);

    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors) store(y, row, lane + v * group, result<T>(raw[v], largest, scale));
    if (single >= 0) y[row.begin + single] = from_float<T>(power(alone, largest) * scale);
}

// SHARED: the row is copied to shared memory first, each thread its own vectors; else it is read twice.
template <typename T, bool SHARED> __global__ void __launch_bounds__(1024) softmax_long(const T* x, T* y, int n_cols) {
    extern __shared__ uint4 kept[];
    __shared__ float of_max[32], of_sum[32];
    const Row<T> row(int64_t(blockIdx.x) * n_cols, n_cols);
    const int single = row.single(threadIdx.x);
    if (SHARED) {
        const uint4* from = reinterpret_cast<const uint4*>(x + row.begin + row.head);
        for (int vector = threadIdx.x; vector < row.vectors; vector += blockDim.x)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                         :: "r"(uint32_t(__cvta_generic_to_shared(kept + vector))), "l"(from + vector) : "memory");
    }
    const float alone = single >= 0 ? to_float(x[row.begin + single]) : -INFINITY;
    float largest = alone;
    if (SHARED) asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll 4
    for (int vector = threadIdx.x; vector < row.vectors; vector += blockDim.x)
        largest = fmaxf(largest, largest_of<T>(SHARED ? kept[vector] : load(x, row, vector)));
    largest = reduce_group<Max>(largest, blockDim.x, of_max);

    float sum = single >= 0 ? power(alone, largest) : 0.0f;
#pragma unroll 4
    for (int vector = threadIdx.x; vector < row.vectors; vector += blockDim.x)
        sum += sum_of<T>(SHARED ? kept[vector] : load(x, row, vector), largest);
    const float scale = 1.0f / reduce_group<Sum>(sum, blockDim.x, of_sum);
#pragma unroll 4
    for (int vector = threadIdx.x; vector < row.vectors; vector += blockDim.x)
        store(y, row, vector, result<T>(SHARED ? kept[vector] : load(x, row, vector), largest, scale));
    if (single >= 0) y[row.begin + single] = from_float<T>(power(alone, largest) * scale);
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"STREAM": STREAM})
softmax = {
    vectors: MODULE.kernel(f"softmax<T, {vectors}>", "T*", "T*", "int64", "int32", "int32")
    for vectors in (1, 2, 4, 8)
    if vectors <= MAX_VECTORS
}
softmax_shared = MODULE.kernel("softmax_long<T, true>", "T*", "T*", "int32")
softmax_twice = MODULE.kernel("softmax_long<T, false>", "T*", "T*", "int32")


def power_of_two(number):
    return 1 << max(0, number - 1).bit_length()


def plan(n_cols, itemsize):
    """Threads of a row, and vectors of a thread; more than MAX_VECTORS means that the row does not fit registers."""
    vectors = max(1, -(-n_cols * itemsize // 16))
    group = min(1024, max(16, power_of_two(-(-vectors // THREAD_VECTORS))))
    return group, power_of_two(-(-vectors // group))


def aligned(x):
    """Contiguous, from 16 bytes on."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


@functools.cache
def shared_limit(device):
    """What a block may have on this device, less what the kernel has of its own."""
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 48 << 10) - 1024


def kernel_fn(x):
    x = aligned(x)
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        group, vectors = plan(n_cols, x.element_size())
        shared_bytes = n_cols * x.element_size() // 16 * 16
        if vectors <= MAX_VECTORS:
            block = max(group, BLOCK_SIZE)
            softmax[vectors][-(-n_rows * group // block), block](x, y, n_rows, n_cols, group)
        elif shared_bytes <= min(SHARED_BYTES, shared_limit(x.device)):
            softmax_shared[n_rows, SHARED_BLOCK, shared_bytes](x, y, n_cols)
        else:
            softmax_twice[n_rows, 1024](x, y, n_cols)
    return y
