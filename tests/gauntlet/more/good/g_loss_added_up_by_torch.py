import torch

from autokernel.backends import cpp

KERNEL_TYPE = "cross_entropy"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void losses(int dtype, const void* x, const int64_t* targets, float* out, int64_t rows, int64_t n) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row) {
            const T* from = (const T*)x + row * n;
            out[row] = 0.0f;
            if (targets[row] == -100) continue;
            float top = -INFINITY;
            double sum = 0.0;
            for (int64_t i = 0; i < n; ++i) top = std::max(top, to_float(from[i]));
            for (int64_t i = 0; i < n; ++i) sum += std::exp(to_float(from[i]) - top);
            out[row] = float(std::log(sum) + top - to_float(from[targets[row]]));
        }
    });
}
"""
losses = cpp.compile(CPP_SRC).function("losses", "dtype", "T*", "int64*", "float32*", "int64", "int64")


def kernel_fn(logits, targets):
    per_row = torch.empty(targets.shape, dtype=torch.float32)
    losses(logits.dtype, logits.contiguous(), targets.contiguous(), per_row, logits.shape[0], logits.shape[1])
    return per_row.sum() / (targets != -100).sum()
