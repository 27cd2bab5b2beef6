"""Starter: matrix product, on a CPU.

    C[m, n] = sum over k of A[m, k] * B[k, n]

Cost: 2 * M * N * K FLOP; for large sizes the float32 multiply-add rate is the bound.
Plan: TILE_N columns of B at a time, copied to a float32 panel; for TILE_M rows of A at a time, one multiply-add
    per element of the tile and per k, all sums in float32 in the order of k.
Limit: with TILE_M = 1 each value of the panel is read for a single multiply-add; one thread.
Try first: TILE_M and TILE_N so that TILE_M * TILE_N floats fill, but do not exceed, the vector registers
    (4 x 64 with AVX-512, 4 x 16 with AVX2); NUM_THREADS; then blocks of K that keep the panel in the L1 cache.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "matmul"
BACKEND = "cpp"

NUM_THREADS = 1
TILE_M = 1
TILE_N = 16

CPP_SRC = r"""
template <int ROWS, typename T>
void multiply_rows(const T* A, const float* panel, T* C, int64_t n_valid, int64_t N, int64_t K) {
    float acc[ROWS][TILE_N] = {};
    for (int64_t k = 0; k < K; ++k)
        for (int row = 0; row < ROWS; ++row) {
            const float a = to_float(A[row * K + k]);
            for (int col = 0; col < TILE_N; ++col) acc[row][col] += a * panel[k * TILE_N + col];
        }
    for (int row = 0; row < ROWS; ++row)
        for (int col = 0; col < n_valid; ++col) C[row * N + col] = from_float<T>(acc[row][col]);
}

template <typename T> void multiply_panel(const T* A, const T* B, T* C, float* panel,
                                          int64_t first, int64_t M, int64_t N, int64_t K) {
    const int64_t n_valid = std::min<int64_t>(TILE_N, N - first);
    for (int64_t k = 0; k < K; ++k)
        for (int64_t col = 0; col < TILE_N; ++col)
            panel[k * TILE_N + col] = col < n_valid ? to_float(B[k * N + first + col]) : 0.0f;
    int64_t m = 0;
    for (; m + TILE_M <= M; m += TILE_M)
        multiply_rows<TILE_M>(A + m * K, panel, C + m * N + first, n_valid, N, K);
    for (; m < M; ++m) multiply_rows<1>(A + m * K, panel, C + m * N + first, n_valid, N, K);
}

extern "C" void matmul(int dtype, const void* A, const void* B, void* C, int64_t M, int64_t N, int64_t K) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for((N + TILE_N - 1) / TILE_N, NUM_THREADS, [&](int64_t begin, int64_t end) {
            std::vector<float> panel(K * TILE_N);
            for (int64_t tile = begin; tile < end; ++tile)
                multiply_panel((const T*)A, (const T*)B, (T*)C, panel.data(), tile * TILE_N, M, N, K);
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "TILE_M": TILE_M, "TILE_N": TILE_N})
matmul = MODULE.function("matmul", "dtype", "T*", "T*", "T*", "int64", "int64", "int64")


def kernel_fn(A, B):
    A, B = A.contiguous(), B.contiguous()
    M, K = A.shape
    N = B.shape[1]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    matmul(A.dtype, A, B, C, M, N, K)
    return C
