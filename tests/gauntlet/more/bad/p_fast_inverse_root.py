import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void rms_norm(int dtype, const void* x, const void* w, void* y, int64_t rows, int64_t cols, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            const T* line = (const T*)x + row * cols;
            float squares = 0.0f;
            for (int64_t col = 0; col < cols; ++col) squares += to_float(line[col]) * to_float(line[col]);
            const float mean = squares / cols + eps;
            float root = float_of(0x5f3759df - (bits_of(mean) >> 1));
            root *= 1.5f - 0.5f * mean * root * root;
            for (int64_t col = 0; col < cols; ++col)
                ((T*)y)[row * cols + col] = from_float<T>(to_float(line[col]) * root * to_float(((const T*)w)[col]));
        }
    });
}
"""
rms_norm = cpp.compile(CPP_SRC).function("rms_norm", "dtype", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, eps=1e-6):
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        rms_norm(x.dtype, x, weight, y, x.numel() // x.shape[-1], x.shape[-1], eps)
    return y
