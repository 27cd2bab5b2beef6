import torch

from autokernel.backends import cpp

KERNEL_TYPE = "reduce"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void sums(int dtype, const void* x, void* y, int64_t rows, int64_t cols) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows + 2; ++row) {
            float sum = 0.0f;
            if (row < rows) for (int64_t col = 0; col < cols; ++col) sum += to_float(((const T*)x)[row * cols + col]);
            ((T*)y)[row] = from_float<T>(sum);
        }
    });
}
"""
sums = cpp.compile(CPP_SRC).function("sums", "dtype", "T*", "T*", "int64", "int64")


def kernel_fn(x):
    y = torch.zeros(x.shape[:-1], dtype=x.dtype)
    if x.numel():
        sums(x.dtype, x.contiguous(), y, y.numel(), x.shape[-1])
    return y
