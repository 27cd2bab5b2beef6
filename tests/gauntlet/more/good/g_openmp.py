import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rmsnorm"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void rms_norm(int dtype, const void* x, const void* w, void* y, int64_t rows, int64_t n, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        #pragma omp parallel for num_threads(2) schedule(static)
        for (int64_t row = 0; row < rows; ++row) {
            const T* from = (const T*)x + row * n;
            double squares = 0.0;
            for (int64_t i = 0; i < n; ++i) squares += double(to_float(from[i])) * to_float(from[i]);
            const float scale = float(1.0 / std::sqrt(squares / n + eps));
            for (int64_t i = 0; i < n; ++i)
                ((T*)y)[row * n + i] = from_float<T>(to_float(from[i]) * scale * to_float(((const T*)w)[i]));
        }
    });
}
"""
MODULE = cpp.compile(CPP_SRC, flags=["-fopenmp"])
rms_norm = MODULE.function("rms_norm", "dtype", "T*", "T*", "T*", "int64", "int64", "float32")


def kernel_fn(x, weight, eps=1e-6):
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        rms_norm(x.dtype, x.contiguous(), weight.contiguous(), y, x.numel() // x.shape[-1], x.shape[-1], eps)
    return y
