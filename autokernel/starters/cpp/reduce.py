"""Starter: sum over the last axis, on a CPU.

    y[m] = sum(x[m, :])

Cost: 1 FLOP and itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row after the other, added up in float32 and rounded once to x's dtype.
Limit: with LANES = 1 each addition waits for the one before it; one thread.
Try first: more LANES (16 to 64), then NUM_THREADS and PREFETCH; splitting long rows among threads when rows are few.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "reduce"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a row, which g++ keeps in vector registers
PREFETCH = 0  # elements fetched ahead of those that are added; one of 0, 256, 1024, 4096
UNROLL = False  # let g++ unroll the loops

CPP_SRC = r"""
template <typename T> float row_sum(const T* x, int64_t n_cols) {
    float partial[LANES] = {};
    int64_t col = 0;
    for (; col + LANES <= n_cols; col += LANES) {
        if (PREFETCH > 0) prefetch(x + col + PREFETCH, LANES);
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += to_float(x[col + lane]);
    }
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; col < n_cols; ++col) sum += to_float(x[col]);
    return sum;
}

extern "C" void row_sums(int dtype, const void* x, void* y, int64_t n_rows, int64_t n_cols) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                ((T*)y)[row] = from_float<T>(row_sum((const T*)x + row * n_cols, n_cols));
        });
    });
}
"""

DEFINES = {"NUM_THREADS": NUM_THREADS, "LANES": LANES, "PREFETCH": PREFETCH}
MODULE = cpp.compile(CPP_SRC, defines=DEFINES, flags=["-funroll-loops"] if UNROLL else [])
row_sums = MODULE.function("row_sums", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    row_sums(x.dtype, x, y, y.numel(), x.shape[-1])
    return y
