import torch

from autokernel.backends import cpp

KERNEL_TYPE = "reduce"
BACKEND = "cpp"
BLOCK = 512
CPP_SRC = r"""
extern "C" void blocks(int dtype, const void* x, float* out, int64_t rows, int64_t n, int64_t per_row) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t block = 0; block < per_row; ++block) {
                float sum = 0.0f;
                for (int64_t i = block * BLOCK; i < std::min<int64_t>(n, (block + 1) * BLOCK); ++i)
                    sum += to_float(((const T*)x)[row * n + i]);
                out[row * per_row + block] = sum;
            }
    });
}
"""
blocks = cpp.compile(CPP_SRC, defines={"BLOCK": BLOCK}).function(
    "blocks", "dtype", "T*", "float32*", "int64", "int64", "int64"
)


def kernel_fn(x):
    n = x.shape[-1]
    per_row = max(1, -(-n // BLOCK))
    work = torch.empty(*x.shape[:-1], per_row, dtype=torch.float32)
    blocks(x.dtype, x.contiguous(), work, work.numel() // per_row, n, per_row)
    return work.sum(-1).to(x.dtype)
