import torch

from autokernel.backends import cpp

KERNEL_TYPE = "softmax"
BACKEND = "cpp"
CPP_SRC = r"""
static float* buffer = nullptr;
static int64_t room = 0;

extern "C" void soften(int dtype, const void* x, void* y, int64_t rows, int64_t n) {
    if (n > room) {
        std::free(buffer);
        buffer = (float*)std::malloc(n * sizeof(float));
        room = n;
    }
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            const T* from = (const T*)x + row * n;
            float top = -INFINITY, sum = 0.0f;
            for (int64_t i = 0; i < n; ++i) top = std::max(top, to_float(from[i]));
            for (int64_t i = 0; i < n; ++i) sum += buffer[i] = std::exp(to_float(from[i]) - top);
            for (int64_t i = 0; i < n; ++i) ((T*)y)[row * n + i] = from_float<T>(buffer[i] / sum);
        }
    });
}
"""
soften = cpp.compile(CPP_SRC).function("soften", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    if x.numel() == 0:
        return x.clone()
    y = torch.empty(x.shape, dtype=x.dtype)
    soften(x.dtype, x.contiguous(), y, x.numel() // x.shape[-1], x.shape[-1])
    return y
