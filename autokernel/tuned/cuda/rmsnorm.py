"""Tuned: root-mean-square normalisation over the last axis, for Hopper, in CUDA C++.

    y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]

Cost: 4 FLOP and 2 * itemsize bytes per element: 1 FLOP/byte in float16, far below any ridge point.
Plan: a group of threads for each row, as many as leave THREAD_VECTORS vectors of 16 bytes to each, so that the row is
    read once and stays in registers; narrow rows share a block.  Rows that do not start on 16 bytes are taken in
    vectors from their first aligned element on, and a few threads take a single element besides.
Limit: a row of more than 1024 * MAX_VECTORS vectors is read twice, by one block.
Try first: THREAD_VECTORS, BLOCK_SIZE for narrow rows, STREAM.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "rmsnorm"
BACKEND = "cuda"

THREAD_VECTORS = 2  # vectors of a thread; one of 1, 2, 4
BLOCK_SIZE = 128  # least threads of a block; one of 64, 128, 256, 512
STREAM = False  # whether x and y are marked as not used again
MAX_VECTORS = 4  # the largest number of vectors that a kernel is made for

CUDA_SRC = r"""
struct Sum { __device__ static float of(float a, float b) { return a + b; } };

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
    __device__ int col(int vector) const { return head + vector * WIDTH; }
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

template <typename T> __device__ __forceinline__ uint4
scaled(const uint4& raw, const T* weight, int col, bool whole, float scale) {
    constexpr int WIDTH = 16 / sizeof(T);
    uint4 factors, y;
    if (whole) factors = *reinterpret_cast<const uint4*>(weight + col);
    for (int i = 0; i < WIDTH; ++i)
        put<T>(y, i, at<T>(raw, i) * scale * (whole ? at<T>(factors, i) : to_float(weight[col + i])));
    return y;
}

template <typename T, int V> __global__ void __launch_bounds__(1024)
rms_norm(const T* x, const T* weight, T* y, int64_t n_rows, int n_cols, int group, float eps) {
    __shared__ float partial[32];
    const int lane = threadIdx.x & (group - 1);
    const int64_t index = int64_t(blockIdx.x) * (blockDim.x / group) + threadIdx.x / group;
    const Row<T> row(index * n_cols, index < n_rows ? n_cols : 0);  // a row that is not there has no elements
    const int single = row.single(lane);

    uint4 raw[V];
    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors) raw[v] = load(x, row, lane + v * group);
    const float alone = single >= 0 ? to_float(x[row.begin + single]) : 0.0f;
    float sum = alone * alone;
    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors)
            for (int i = 0; i < Row<T>::WIDTH; ++i) sum += at<T>(raw[v], i) * at<T>(raw[v], i);
    const float scale = 1.0f / sqrtf(reduce_group<Sum>(sum, group, partial) / n_cols + eps);

    const bool whole = row.head == 0 && reinterpret_cast<uint64_t>(weight) % 16 == 0;
    for (int v = 0; v < V; ++v)
        if (lane + v * group < row.vectors)
            store(y, row, lane + v * group, scaled(raw[v], weight, row.col(lane + v * group), whole, scale));
    if (single >= 0) y[row.begin + single] = from_float<T>(alone * scale * to_float(weight[single]));
}

template <typename T> __global__ void __launch_bounds__(1024)
rms_norm_long(const T* x, const T* weight, T* y, int n_cols, float eps) {
    __shared__ float partial[32];
    const Row<T> row(int64_t(blockIdx.x) * n_cols, n_cols);
    const int single = row.single(threadIdx.x);
    const float alone = single >= 0 ? to_float(x[row.begin + single]) : 0.0f;
    float sum = alone * alone;
#pragma unroll 4
    for (int vector = threadIdx.x; vector < row.vectors; vector += blockDim.x) {
        const uint4 raw = load(x, row, vector);
        for (int i = 0; i < Row<T>::WIDTH; ++i) sum += at<T>(raw, i) * at<T>(raw, i);
    }
    const float scale = 1.0f / sqrtf(reduce_group<Sum>(sum, blockDim.x, partial) / n_cols + eps);
    const bool whole = row.head == 0 && reinterpret_cast<uint64_t>(weight) % 16 == 0;
#pragma unroll 4
    for (int vector = threadIdx.x; vector < row.vectors; vector += blockDim.x)
        store(y, row, vector, scaled(load(x, row, vector), weight, row.col(vector), whole, scale));
    if (single >= 0) y[row.begin + single] = from_float<T>(alone * scale * to_float(weight[single]));
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"STREAM": STREAM})
rms_norm = {
    vectors: MODULE.kernel(f"rms_norm<T, {vectors}>", "T*", "T*", "T*", "int64", "int32", "int32", "float32")
    for vectors in (1, 2, 4, 8)
    if vectors <= MAX_VECTORS
}
rms_norm_long = MODULE.kernel("rms_norm_long<T>", "T*", "T*", "T*", "int32", "float32")


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


def kernel_fn(x, weight, eps=1e-6):
    x, weight = aligned(x), weight.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        group, vectors = plan(n_cols, x.element_size())
        if vectors <= MAX_VECTORS:
            block = max(group, BLOCK_SIZE)
            rms_norm[vectors][-(-n_rows * group // block), block](x, weight, y, n_rows, n_cols, group, eps)
        else:
            rms_norm_long[n_rows, 1024](x, weight, y, n_cols, eps)
    return y
