"""A right kernel for tests to plant faults in: softmax over the last axis, on a CPU.

y[m, n] = exp(x[m, n] - max(x[m, :])) / sum(exp(x[m, :] - max(x[m, :])))
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "softmax"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # elements of a row handled side by side, which g++ keeps in vector registers
VECTOR_EXP = False  # the header's vectorisable exp (within 2 ulp) instead of std::exp

CPP_SRC = r"""
inline float exponential(float x) { return VECTOR_EXP ? vector_exp(x) : std::exp(x); }

template <typename T> float row_max(const T* x, int64_t n) {
    float partial[LANES];
    for (float& value : partial) value = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) {
            const float value = to_float(x[i + lane]);
            partial[lane] = value > partial[lane] ? value : partial[lane];
        }
    float largest = -INFINITY;
    for (float value : partial) largest = std::max(largest, value);
    for (; i < n; ++i) largest = std::max(largest, to_float(x[i]));
    return largest;
}

float row_sum(const float* x, int64_t n) {
    float partial[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += x[i + lane];
    float sum = 0.0f;
    for (float value : partial) sum += value;
    for (; i < n; ++i) sum += x[i];
    return sum;
}

template <typename T> void softmax_row(const T* x, T* y, float* buffer, int64_t n_cols) {
    const float largest = row_max(x, n_cols);
    for (int64_t col = 0; col < n_cols; ++col) buffer[col] = exponential(to_float(x[col]) - largest);
    const float scale = 1.0f / row_sum(buffer, n_cols);
    for (int64_t col = 0; col < n_cols; ++col) y[col] = from_float<T>(buffer[col] * scale);
}

extern "C" void softmax(int dtype, const void* x, void* y, int64_t n_rows, int64_t n_cols) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t begin, int64_t end) {
            std::vector<float> buffer(n_cols);
            for (int64_t row = begin; row < end; ++row)
                softmax_row((const T*)x + row * n_cols, (T*)y + row * n_cols, buffer.data(), n_cols);
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES, "VECTOR_EXP": VECTOR_EXP})
softmax = MODULE.function("softmax", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        n_cols = x.shape[-1]
        softmax(x.dtype, x, y, x.numel() // n_cols, n_cols)
    return y
