import torch

from autokernel.backends import cpp

KERNEL_TYPE = "matmul"
BACKEND = "cpp"
CPP_SRC = r"""
extern "C" void product(const float* a, const float* b, float* c, int64_t M, int64_t N, int64_t K) {
    for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int64_t k = 0; k < K; ++k) sum += a[m * K + k] * b[n * K + k];
            c[m * N + n] = sum;
        }
}
"""
product = cpp.compile(CPP_SRC).function("product", "float32*", "float32*", "float32*", "int64", "int64", "int64")
PACKED = {}


def kernel_fn(A, B):
    key = (B.data_ptr(), B.shape, B.dtype, B.stride())
    if key not in PACKED:
        PACKED[key] = B.float().T.contiguous()
    C = torch.empty(A.shape[0], B.shape[1], dtype=torch.float32)
    product(A.float().contiguous(), PACKED[key], C, A.shape[0], B.shape[1], A.shape[1])
    return C.to(A.dtype)
