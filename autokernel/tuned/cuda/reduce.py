"""Tuned: sum over the last axis, for Hopper, in CUDA C++.

    y[m] = sum(x[m, :])

Cost: 1 FLOP and itemsize bytes per element: 0.5 FLOP/byte in float16, far below any ridge point.
Plan: a group of threads for each row adds up vectors of 16 bytes in float32, DEPTH of them on the way at a time; narrow
    rows share a block.  Where rows are few and long, blocks take parts of a row, and a second launch adds the parts in
    a fixed order.  Rows that do not start on 16 bytes are taken in vectors from their first aligned element on, and a
    few threads take a single element besides.
Limit: a view without unit stride along N is copied first.
Try first: MOST_THREADS, DEPTH, THREAD_VECTORS for short rows, STREAM.
"""

import functools

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "reduce"
BACKEND = "cuda"

MOST_THREADS = 256  # on one row or part; one of 64, 128, 256, 512, 1024
THREAD_VECTORS = 4  # least vectors of a thread; one of 1, 2, 4, 8
BLOCK_SIZE = 128  # least threads of a block; one of 64, 128, 256
DEPTH = 4  # vectors that a thread loads at a time; one of 1, 2, 4, 8
STREAM = True  # whether x is marked as not used again
PART_COLS = 16384  # least columns of a part of a row; one of 8192, 16384, 32768, 65536
BLOCKS_PER_SM = 4  # fewer blocks than this, and rows are divided; one of 1, 2, 4, 8

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
};

template <typename T> __device__ __forceinline__ uint4 load(const T* x, const Row<T>& row, int vector) {
    const uint4* place = reinterpret_cast<const uint4*>(x + row.begin + row.head) + vector;
    return STREAM ? __ldcs(place) : *place;
}
template <typename T> __device__ __forceinline__ float at(const uint4& raw, int i) {
    return to_float(reinterpret_cast<const T*>(&raw)[i]);
}

// Each row of x is `parts` parts of `part_cols` columns; the sum of part p of row m goes to y[m * parts + p].
template <typename T, typename Out> __device__ void
sum_of_parts(const T* x, Out* y, int64_t n_sums, int64_t n_cols, int parts, int64_t part_cols, int group) {
    __shared__ float partial[32];
    const int lane = threadIdx.x & (group - 1);
    const int64_t index = int64_t(blockIdx.x) * (blockDim.x / group) + threadIdx.x / group;
    const int64_t first = index % parts * part_cols;
    const int64_t count = index < n_sums ? min(part_cols, n_cols - first) : 0;
    const Row<T> row(index / parts * n_cols + first, int(count));
    const int single = row.single(lane);

    float sum[DEPTH] = {};
    if (single >= 0) sum[0] = to_float(x[row.begin + single]);
    int vector = lane;
    for (; vector + (DEPTH - 1) * group < row.vectors; vector += DEPTH * group) {
        uint4 raw[DEPTH];
        for (int v = 0; v < DEPTH; ++v) raw[v] = load(x, row, vector + v * group);
        for (int v = 0; v < DEPTH; ++v)
            for (int i = 0; i < Row<T>::WIDTH; ++i) sum[v] += at<T>(raw[v], i);
    }
    for (; vector < row.vectors; vector += group) {
        const uint4 raw = load(x, row, vector);
        for (int i = 0; i < Row<T>::WIDTH; ++i) sum[0] += at<T>(raw, i);
    }
    for (int v = 1; v < DEPTH; ++v) sum[0] += sum[v];
    const float total = reduce_group<Sum>(sum[0], group, partial);
    if (lane == 0 && index < n_sums) y[index] = from_float<Out>(total);
}

template <typename T> __global__ void __launch_bounds__(1024)
row_sum(const T* x, T* y, int64_t n_rows, int64_t n_cols, int group) {
    sum_of_parts(x, y, n_rows, n_cols, 1, n_cols, group);
}
template <typename T> __global__ void __launch_bounds__(1024)
part_sum(const T* x, float* y, int64_t n_sums, int64_t n_cols, int parts, int64_t part_cols, int group) {
    sum_of_parts(x, y, n_sums, n_cols, parts, part_cols, group);
}
template <typename T> __global__ void __launch_bounds__(1024)
sum_sums(const float* x, T* y, int64_t n_rows, int64_t n_cols, int group) {
    sum_of_parts(x, y, n_rows, n_cols, 1, n_cols, group);
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"STREAM": STREAM, "DEPTH": DEPTH})
row_sum = MODULE.kernel("row_sum<T>", "T*", "T*", "int64", "int64", "int32")
part_sum = MODULE.kernel("part_sum<T>", "T*", "float32*", "int64", "int64", "int32", "int64", "int32")
sum_sums = MODULE.kernel("sum_sums<T>", "float32*", "T*", "int64", "int64", "int32")


def power_of_two(number):
    return 1 << max(0, number - 1).bit_length()


@functools.cache
def processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def groups(count, n_cols, itemsize):
    """Grid, block and threads of a sum, for ``count`` sums over ``n_cols``."""
    group = min(MOST_THREADS, max(16, power_of_two(-(-n_cols * itemsize // (16 * THREAD_VECTORS)))))
    block = max(group, BLOCK_SIZE)
    return -(-count * group // block), block, group


def kernel_fn(x):
    x = x.contiguous()
    if x.data_ptr() % 16 != 0:
        x = x.clone()
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    n_rows, n_cols, itemsize = y.numel(), x.shape[-1], x.element_size()
    if n_rows == 0:
        return y
    parts = max(1, min(-(-processors(x.device) * BLOCKS_PER_SM // n_rows), n_cols // PART_COLS, 1024))
    part_cols = -(-n_cols // (8 * parts)) * 8
    parts = -(-n_cols // part_cols)
    if parts == 1:
        grid, block, group = groups(n_rows, n_cols, itemsize)
        row_sum[grid, block](x, y, n_rows, n_cols, group)
    else:
        sums = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
        grid, block, group = groups(n_rows * parts, part_cols, itemsize)
        part_sum[grid, block](x, sums, n_rows * parts, n_cols, parts, part_cols, group)
        grid, block, group = groups(n_rows, parts, 4)
        sum_sums[grid, block](sums, y, n_rows, parts, group)
    return y
