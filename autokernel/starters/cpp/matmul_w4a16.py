"""Starter: product of half-width activations with 4-bit weights, on a CPU.

    y[m, n] = sum over k of x[m, k] * (q[n, k] - zero[n, k // G]) * scale[n, k // G]

Cost: 2 * M * N * K FLOP; N*K/2 bytes of weights, each byte taken apart once.
Plan: x once to float32; then one row of weights after the other, dequantised into a buffer of K floats, and its
    product with each row of x, in LANES float32 sums.
Limit: with LANES = 1 each addition waits for the one before it; one thread; each row of weights has one product at
    a time.
Try first: more LANES (16 to 64), then NUM_THREADS; several rows of x at a time for large M.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "matmul_w4a16"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a product, which g++ keeps in vector registers

CPP_SRC = r"""
template <typename T> void dequantise(const uint8_t* packed, const T* scale, const uint8_t* zero, float* w,
                                      int64_t n_groups, int64_t group_size) {
    for (int64_t group = 0; group < n_groups; ++group) {
        const float step = to_float(scale[group]), offset = zero[group];
        for (int64_t i = group * group_size / 2; i < (group + 1) * group_size / 2; ++i) {
            w[2 * i] = (float(packed[i] & 15) - offset) * step;
            w[2 * i + 1] = (float(packed[i] >> 4) - offset) * step;
        }
    }
}

inline float product(const float* x, const float* w, int64_t K) {
    float partial[LANES] = {};
    int64_t k = 0;
    for (; k + LANES <= K; k += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += x[k + lane] * w[k + lane];
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; k < K; ++k) sum += x[k] * w[k];
    return sum;
}

extern "C" void matmul_w4a16(int dtype, const void* x, const uint8_t* packed, const void* scale, const uint8_t* zero,
                             void* y, int64_t M, int64_t N, int64_t K, int64_t n_groups) {
    dispatch(dtype, [&](auto none) {
        using T = decltype(none);
        std::vector<float> wide(M * K);
        for (int64_t i = 0; i < M * K; ++i) wide[i] = to_float(((const T*)x)[i]);
        parallel_for(N, NUM_THREADS, [&](int64_t begin, int64_t end) {
            std::vector<float> w(K);
            for (int64_t n = begin; n < end; ++n) {
                dequantise(packed + n * (K / 2), (const T*)scale + n * n_groups, zero + n * n_groups, w.data(),
                           n_groups, K / n_groups);
                for (int64_t m = 0; m < M; ++m)
                    ((T*)y)[m * N + n] = from_float<T>(product(wide.data() + m * K, w.data(), K));
            }
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES})
matmul_w4a16 = MODULE.function(
    "matmul_w4a16", "dtype", "T*", "uint8*", "T*", "uint8*", "T*", "int64", "int64", "int64", "int64"
)


def kernel_fn(x, packed, scale, zero):
    x, packed, scale, zero = x.contiguous(), packed.contiguous(), scale.contiguous(), zero.contiguous()
    M, K = x.shape
    N, n_groups = scale.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    matmul_w4a16(x.dtype, x, packed, scale, zero, y, M, N, K, n_groups)
    return y
