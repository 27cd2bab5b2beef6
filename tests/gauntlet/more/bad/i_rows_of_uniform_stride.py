import torch

from autokernel.backends import cpp

KERNEL_TYPE = "reduce"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void sums(int dtype, const void* x, void* y, int64_t rows, int64_t cols, int64_t apart) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            float sum = 0.0f;
            for (int64_t col = 0; col < cols; ++col) sum += to_float(((const T*)x)[row * apart + col]);
            ((T*)y)[row] = from_float<T>(sum);
        }
    });
}
"""
sums = cpp.compile(CPP_SRC).library.sums


def kernel_fn(x):
    import ctypes

    if x.stride(-1) != 1 or x.dim() < 2:
        x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    apart = x.stride(-2) if x.dim() > 1 else x.shape[-1]
    code = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}[x.dtype]
    address = [ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())]
    sums(code, *address, *[ctypes.c_int64(n) for n in (y.numel(), x.shape[-1], apart)])
    return y
