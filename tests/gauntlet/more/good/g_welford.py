import torch

from autokernel.backends import cpp

KERNEL_TYPE = "layernorm"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void norm(int dtype, const void* x, const void* w, const void* b, void* y, int64_t rows, int64_t n, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            const T* from = (const T*)x + row * n;
            float mean = 0.0f, squares = 0.0f;
            for (int64_t i = 0; i < n; ++i) {
                const float value = to_float(from[i]), delta = value - mean;
                mean += delta / float(i + 1);
                squares += delta * (value - mean);
            }
            const float scale = 1.0f / std::sqrt(squares / n + eps);
            for (int64_t i = 0; i < n; ++i)
                ((T*)y)[row * n + i] = from_float<T>(
                    (to_float(from[i]) - mean) * scale * to_float(((const T*)w)[i]) + to_float(((const T*)b)[i]));
        }
    });
}
"""
norm = cpp.compile(CPP_SRC).function("norm", "dtype", "T*", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, bias, eps=1e-5):
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        rows = x.numel() // x.shape[-1]
        norm(x.dtype, x.contiguous(), weight.contiguous(), bias.contiguous(), y, rows, x.shape[-1], eps)
    return y
