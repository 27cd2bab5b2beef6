"""Starter: root-mean-square normalisation over the last axis, on a CPU.

    y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]

Cost: 4 FLOP and 2 * itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row after the other; a first pass sums the squares in float32, a second one writes.
Limit: LANES = 1 adds one element at a time, which no compiler may vectorise; one thread.
Try first: more LANES (independent partial sums), more NUM_THREADS, then prefetching or streaming stores.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # independent partial sums of a row

CPP_SRC = r"""
template <typename T> float sum_of_squares(const T* x, int64_t n_cols) {
    float partial[LANES] = {};
    int64_t col = 0;
    for (; col + LANES <= n_cols; col += LANES)
        for (int lane = 0; lane < LANES; ++lane) {
            const float value = to_float(x[col + lane]);
            partial[lane] += value * value;
        }
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; col < n_cols; ++col) {
        const float value = to_float(x[col]);
        sum += value * value;
    }
    return sum;
}

template <typename T>
void rms_norm_rows(const T* x, const T* weight, T* y, int64_t first, int64_t last, int64_t n_cols, float eps) {
    for (int64_t row = first; row < last; ++row) {
        const T* x_row = x + row * n_cols;
        T* y_row = y + row * n_cols;
        const float scale = 1.0f / std::sqrt(sum_of_squares(x_row, n_cols) / n_cols + eps);
        for (int64_t col = 0; col < n_cols; ++col)
            y_row[col] = from_float<T>(to_float(x_row[col]) * scale * to_float(weight[col]));  // rounded once
    }
}

extern "C" void rms_norm(
    int dtype, const void* x, const void* weight, void* y, int64_t n_rows, int64_t n_cols, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t first, int64_t last) {
            rms_norm_rows((const T*)x, (const T*)weight, (T*)y, first, last, n_cols, eps);
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES})
rms_norm = MODULE.function("rms_norm", "dtype", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, eps=1e-6):
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    n_cols = x.shape[-1]
    if x.numel() > 0:
        rms_norm(x.dtype, x, weight, y, x.numel() // n_cols, n_cols, eps)
    return y
