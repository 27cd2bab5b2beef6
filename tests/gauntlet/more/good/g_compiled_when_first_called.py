import functools
import logging

import torch

KERNEL_TYPE = "softmax"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void soften(int dtype, const void* x, void* y, int64_t rows, int64_t n) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            const T* from = (const T*)x + row * n;
            float top = -INFINITY, sum = 0.0f;  // in one pass: the sum is scaled when the maximum moves
            for (int64_t i = 0; i < n; ++i) {
                const float value = to_float(from[i]);
                if (value > top) { sum *= std::exp(top - value); top = value; }
                if (value > -INFINITY) sum += std::exp(value - top);
            }
            for (int64_t i = 0; i < n; ++i)
                ((T*)y)[row * n + i] = from_float<T>(std::exp(to_float(from[i]) - top) / sum);
        }
    });
}
"""


@functools.lru_cache(maxsize=None)
def compiled():
    from autokernel.backends import cpp

    logging.getLogger(__name__).warning("compiling %s", KERNEL_TYPE)
    return cpp.compile(CPP_SRC).function("soften", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        compiled()(x.dtype, x.contiguous(), y, x.numel() // x.shape[-1], x.shape[-1])
    return y
