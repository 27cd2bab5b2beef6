"""A right kernel as a function of inputs and weights, with constants that a search can change."""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "level2_2_tiny_result"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1

CPP_SRC = r"""
extern "C" void linear(const float* x, const float* w, const float* b, float* y, int64_t m, int64_t n, int64_t k) {
    parallel_for(m, NUM_THREADS, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t j = 0; j < n; ++j) {
                float sums[LANES] = {};
                int64_t p = 0;
                for (; p + LANES <= k; p += LANES)
                    for (int64_t l = 0; l < LANES; ++l) sums[l] += x[i * k + p + l] * w[j * k + p + l];
                float sum = b[j];
                for (float one : sums) sum += one;
                for (; p < k; ++p) sum += x[i * k + p] * w[j * k + p];
                y[i * n + j] = 1e-4f / (1.0f + std::exp(-sum));
            }
    });
}
"""

linear = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES}).function(
    "linear", "float32*", "float32*", "float32*", "float32*", "int64", "int64", "int64"
)


def kernel_fn(x, weight, bias):
    y = torch.empty(x.shape[0], weight.shape[0])
    linear(x, weight, bias, y, x.shape[0], weight.shape[0], x.shape[1])
    return y
