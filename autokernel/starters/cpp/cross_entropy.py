"""Starter: cross entropy of logits against class targets, averaged over the rows that count, on a CPU.

    loss = mean over targets[n] != -100 of log(sum(exp(logits[n, :]))) - logits[n, targets[n]]

Cost: one exp and itemsize bytes per logit; with a vectorised exp, memory bandwidth is the bound.
Plan: one row after the other: its maximum, then the sum of its exponentials; the losses are added up at the end,
    in the order of the rows.
Limit: std::exp takes one logit at a time, and with LANES = 1 so do the maximum and the sum; one thread.
Try first: VECTOR_EXP, more LANES (16 to 64), NUM_THREADS; then one pass with a running maximum.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "cross_entropy"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # logits handled side by side, which g++ keeps in vector registers
VECTOR_EXP = False  # the header's vectorisable exp (within 2 ulp) instead of std::exp

CPP_SRC = r"""
constexpr int64_t IGNORED = -100;

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

template <typename T> float row_sum_exp(const T* x, float largest, int64_t n) {
    float partial[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += exponential(to_float(x[i + lane]) - largest);
    float sum = 0.0f;
    for (float value : partial) sum += value;
    for (; i < n; ++i) sum += exponential(to_float(x[i]) - largest);
    return sum;
}

template <typename T> float row_loss(const T* logits, int64_t target, int64_t n_classes) {
    if (target == IGNORED) return 0.0f;
    if (target < 0 || target >= n_classes) return NAN;  // no such class
    const float largest = row_max(logits, n_classes);
    return std::log(row_sum_exp(logits, largest, n_classes)) + (largest - to_float(logits[target]));
}

extern "C" void cross_entropy(
    int dtype, const void* logits, const int64_t* targets, float* loss, int64_t n_rows, int64_t n_classes) {
    std::vector<float> losses(n_rows);
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                losses[row] = row_loss((const T*)logits + row * n_classes, targets[row], n_classes);
        });
    });
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t row = 0; row < n_rows; ++row) {
        sum += losses[row];
        count += targets[row] != IGNORED;
    }
    *loss = float(sum / count);  // 0 / 0, NaN, if no row counts
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES, "VECTOR_EXP": VECTOR_EXP})
cross_entropy = MODULE.function("cross_entropy", "dtype", "T*", "int64*", "float32*", "int64", "int64")


def kernel_fn(logits, targets):
    logits, targets = logits.contiguous(), targets.contiguous()
    loss = torch.empty((), dtype=torch.float32, device=logits.device)
    n_rows, n_classes = logits.shape
    cross_entropy(logits.dtype, logits, targets, loss, n_rows, n_classes)
    return loss
