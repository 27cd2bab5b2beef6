import torch

from autokernel.backends import cpp

KERNEL_TYPE = "softmax"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void soften(int dtype, void* y, int64_t rows, int64_t cols) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            T* line = (T*)y + row * cols;
            float top = -INFINITY, sum = 0.0f;
            for (int64_t col = 0; col < cols; ++col) top = std::max(top, to_float(line[col]));
            for (int64_t col = 0; col < cols; ++col) sum += std::exp(to_float(line[col]) - top);
            for (int64_t col = 0; col < cols; ++col) line[col] = from_float<T>(std::exp(to_float(line[col]) - top) / sum);
        }
        ((T*)y)[-1] = from_float<T>(0.0f);
    });
}
"""
soften = cpp.compile(CPP_SRC).function("soften", "dtype", "T*", "int64", "int64")


def kernel_fn(x):
    y = x.clone(memory_format=torch.contiguous_format)
    if y.numel():
        soften(y.dtype, y, y.numel() // y.shape[-1], y.shape[-1])
    return y
