"""Starter: product of float8 matrices with a scale for each row of either, on a CPU.

    C[m, n] = scale_a[m] * scale_b[n] * sum over k of A[m, k] * B[n, k]

Cost: 2 * M * N * K FLOP; for large sizes the float32 multiply-add rate is the bound.
Plan: A and B once to float32, by a table of the 256 values; then each row of A with each row of B, in LANES float32
    sums.
Limit: with LANES = 1 each addition waits for the one before it; one thread; each value is read for one product.
Try first: more LANES (16 to 64), then NUM_THREADS; tiles of several rows of A and of B, as `matmul` has them.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "matmul_fp8"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a product, which g++ keeps in vector registers

CPP_SRC = r"""
inline float from_e4m3(int bits) {  // sign, 4 bits of exponent with bias 7, 3 of significand; no infinity
    const int exponent = bits >> 3 & 15, significand = bits & 7;
    float value = exponent > 0 ? std::ldexp(float(8 + significand), exponent - 10) : std::ldexp(float(significand), -9);
    if ((bits & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
    return bits & 128 ? -value : value;
}

inline std::vector<float> widened(const uint8_t* values, int64_t n) {
    float table[256];
    for (int bits = 0; bits < 256; ++bits) table[bits] = from_e4m3(bits);
    std::vector<float> wide(n);
    for (int64_t i = 0; i < n; ++i) wide[i] = table[values[i]];
    return wide;
}

inline float product(const float* a, const float* b, int64_t K) {
    float partial[LANES] = {};
    int64_t k = 0;
    for (; k + LANES <= K; k += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += a[k + lane] * b[k + lane];
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; k < K; ++k) sum += a[k] * b[k];
    return sum;
}

extern "C" void matmul_fp8(int dtype, const uint8_t* A, const uint8_t* B, const float* scale_a, const float* scale_b,
                           void* C, int64_t M, int64_t N, int64_t K) {
    const std::vector<float> a = widened(A, M * K), b = widened(B, N * K);
    dispatch(dtype, [&](auto none) {
        using T = decltype(none);
        parallel_for(M, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t m = begin; m < end; ++m)
                for (int64_t n = 0; n < N; ++n)
                    ((T*)C)[m * N + n] = from_float<T>(
                        product(a.data() + m * K, b.data() + n * K, K) * scale_a[m] * scale_b[n]);
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES})
matmul_fp8 = MODULE.function(
    "matmul_fp8", "dtype", "uint8*", "uint8*", "float32*", "float32*", "T*", "int64", "int64", "int64"
)


def kernel_fn(A, B, scale_a, scale_b, out_dtype="bfloat16"):
    A, B = A.contiguous().view(torch.uint8), B.contiguous().view(torch.uint8)
    M, K = A.shape
    N = B.shape[0]
    C = torch.empty((M, N), dtype=getattr(torch, out_dtype), device=A.device)
    matmul_fp8(C.dtype, A, B, scale_a.contiguous(), scale_b.contiguous(), C, M, N, K)
    return C
