"""Starter: layer normalisation over the last axis, on a CPU.

    y[m, n] = (x[m, n] - mean(x[m, :])) / sqrt(var(x[m, :]) + eps) * weight[n] + bias[n]

Cost: 8 FLOP and 2 * itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row after the other: the mean, the variance around it, then y, BLOCK_COLS columns at a time; all sums in
    float32.
Limit: with LANES = 1 each addition waits for the one before it; one thread.
Try first: more LANES (16 to 64), NUM_THREADS, STREAM, PREFETCH_ROWS.  E[x**2] - E[x]**2 would save a pass over a row
    that lies in the cache anyway, and cancels where the mean is large.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "layernorm"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a row, which g++ keeps in vector registers
BLOCK_COLS = 64  # columns that are written together; one of 16, 32, 64, 128, 256, 512
PREFETCH_ROWS = 0  # while a row is written, the one so many rows below is fetched; one of 0, 1, 2, 4
STREAM = False  # write around the caches: y is not read here
UNROLL = False  # let g++ unroll the loops

CPP_SRC = r"""
template <typename Term> float lane_sum(int64_t n, Term term) {  // of term(0), ..., term(n - 1)
    float partial[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += term(i + lane);
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; i < n; ++i) sum += term(i);
    return sum;
}

template <typename T>
void scale_block(const T* x, const T* weight, const T* bias, T* y, int64_t n, float mean, float scale) {
    T buffer[BLOCK_COLS];
    T* out = STREAM ? buffer : y;
    for (int64_t i = 0; i < n; ++i)
        out[i] = from_float<T>((to_float(x[i]) - mean) * scale * to_float(weight[i]) + to_float(bias[i]));
    if (STREAM) copy_streaming(y, buffer, n);
}

template <typename T>
void layer_norm_row(const T* x, const T* weight, const T* bias, T* y, int64_t n_cols, float eps) {
    const float mean = lane_sum(n_cols, [&](int64_t col) { return to_float(x[col]); }) / n_cols;
    const float squares = lane_sum(n_cols, [&](int64_t col) {
        const float centred = to_float(x[col]) - mean;
        return centred * centred;
    });
    const float scale = 1.0f / std::sqrt(squares / n_cols + eps);
    for (int64_t col = 0; col < n_cols; col += BLOCK_COLS) {
        const int64_t n = std::min<int64_t>(BLOCK_COLS, n_cols - col);
        if (PREFETCH_ROWS > 0) prefetch(x + col + PREFETCH_ROWS * n_cols, n);
        scale_block(x + col, weight + col, bias + col, y + col, n, mean, scale);
    }
}

extern "C" void layer_norm(int dtype, const void* x, const void* weight, const void* bias, void* y,
                           int64_t n_rows, int64_t n_cols, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                layer_norm_row((const T*)x + row * n_cols, (const T*)weight, (const T*)bias, (T*)y + row * n_cols,
                               n_cols, eps);
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
layer_norm = MODULE.function("layer_norm", "dtype", "T*", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, bias, eps=1e-5):
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        layer_norm(x.dtype, x, weight, bias, y, x.numel() // n_cols, n_cols, eps)
    return y
