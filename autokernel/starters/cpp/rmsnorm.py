"""Starter: root-mean-square normalisation over the last axis, on a CPU.

    y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]

Cost: 4 FLOP and 2 * itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row after the other; a first pass sums the squares in float32, a second one scales BLOCK_COLS columns at a
    time and writes them.
Limit: with LANES = 1 each addition waits for the one before it; one thread; memory is read in the first pass only
    and written in the second only.
Try first: more LANES (16 to 64), NUM_THREADS, STREAM, PREFETCH_ROWS; then two rows at a time.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a row, which g++ keeps in vector registers
BLOCK_COLS = 64  # columns that are written together; one of 16, 32, 64, 128, 256, 512
PREFETCH_ROWS = 0  # while a row is written, the one so many rows below is fetched; one of 0, 1, 2, 4
STREAM = False  # write around the caches: y is not read here
UNROLL = False  # let g++ unroll the loops

CPP_SRC = r"""
template <typename T> float sum_of_squares(const T* x, int64_t n) {
    float partial[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += to_float(x[i + lane]) * to_float(x[i + lane]);
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; i < n; ++i) sum += to_float(x[i]) * to_float(x[i]);
    return sum;
}

template <typename T> void scale_block(const T* x, const T* weight, T* y, int64_t n, float scale) {
    T buffer[BLOCK_COLS];
    T* out = STREAM ? buffer : y;
    for (int64_t i = 0; i < n; ++i)
        out[i] = from_float<T>(to_float(x[i]) * scale * to_float(weight[i]));  // rounded once
    if (STREAM) copy_streaming(y, buffer, n);
}

template <typename T> void rms_norm_row(const T* x, const T* weight, T* y, int64_t n_cols, float eps) {
    const float scale = 1.0f / std::sqrt(sum_of_squares(x, n_cols) / n_cols + eps);
    for (int64_t col = 0; col < n_cols; col += BLOCK_COLS) {
        const int64_t n = std::min<int64_t>(BLOCK_COLS, n_cols - col);
        if (PREFETCH_ROWS > 0) prefetch(x + col + PREFETCH_ROWS * n_cols, n);
        scale_block(x + col, weight + col, y + col, n, scale);
    }
}

extern "C" void rms_norm(
    int dtype, const void* x, const void* weight, void* y, int64_t n_rows, int64_t n_cols, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                rms_norm_row((const T*)x + row * n_cols, (const T*)weight, (T*)y + row * n_cols, n_cols, eps);
        });
    });
}
"""

DEFINES = {
    "NUM_THREADS": NUM_THREADS,
    "LANES": LANES,
    "BLOCK_COLS": BLOCK_COLS,
    "PREFETCH_ROWS": PREFETCH_ROWS,
    "STREAM": STREAM,
}
MODULE = cpp.compile(CPP_SRC, defines=DEFINES, flags=["-funroll-loops"] if UNROLL else [])
rms_norm = MODULE.function("rms_norm", "dtype", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, eps=1e-6):
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        rms_norm(x.dtype, x, weight, y, x.numel() // n_cols, n_cols, eps)
    return y
