"""A right kernel for tests to plant faults in: root-mean-square normalisation over the last axis, on a CPU.

y[m, n] = x[m, n] / sqrt(mean(x[m, :]**2) + eps) * weight[n]
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a row, which g++ keeps in vector registers

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

template <typename T> void rms_norm_row(const T* x, const T* weight, T* y, int64_t n_cols, float eps) {
    const float squares = lane_sum(n_cols, [&](int64_t col) { return to_float(x[col]) * to_float(x[col]); });
    const float scale = 1.0f / std::sqrt(squares / n_cols + eps);
    for (int64_t col = 0; col < n_cols; ++col)
        y[col] = from_float<T>(to_float(x[col]) * scale * to_float(weight[col]));  // rounded once
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

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES})
rms_norm = MODULE.function("rms_norm", "dtype", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, eps=1e-6):
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        rms_norm(x.dtype, x, weight, y, x.numel() // n_cols, n_cols, eps)
    return y
