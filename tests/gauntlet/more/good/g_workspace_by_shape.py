import torch

from autokernel.backends import cpp

KERNEL_TYPE = "layernorm"
BACKEND = "cpp"
CPP_SRC = r"""
template <typename T>
void norm_row(const T* x, const T* w, const T* b, float* centred, T* y, int64_t n, float eps) {
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += to_float(x[i]);
    const float mean = float(sum / n);
    for (int64_t i = 0; i < n; ++i) { centred[i] = to_float(x[i]) - mean; squares += double(centred[i]) * centred[i]; }
    const float scale = float(1.0 / std::sqrt(squares / n + eps));
    for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(centred[i] * scale * to_float(w[i]) + to_float(b[i]));
}

extern "C" void norm(int dtype, const void* x, const void* w, const void* b, float* work, void* y,
                     int64_t rows, int64_t n, float eps) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row)
            norm_row((const T*)x + row * n, (const T*)w, (const T*)b, work, (T*)y + row * n, n, eps);
    });
}
"""
kinds = ("dtype", "T*", "T*", "T*", "float32*", "T*", "int64", "int64", "float32")
norm = cpp.compile(CPP_SRC).function("norm", *kinds)
WORKSPACES = {}


def kernel_fn(x, weight, bias, eps=1e-5):
    n = x.shape[-1]
    if n not in WORKSPACES:
        WORKSPACES[n] = torch.zeros(n, dtype=torch.float32)
    y = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        rows = x.numel() // n
        norm(x.dtype, x.contiguous(), weight.contiguous(), bias.contiguous(), WORKSPACES[n], y, rows, n, eps)
    return y
