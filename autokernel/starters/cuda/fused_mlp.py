"""Starter: gated feed-forward block, in CUDA C++.

    y = (act(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T

Cost: 2 * M * F * (2 * K + N) FLOP; for many rows compute is the bound, for few the weights' memory traffic.
Plan: two tiled products.  The first adds up gate and up together and writes the hidden layer, in float32; the
    second multiplies that with w_down.  Tiles lie in shared memory as float32; each thread adds up
    THREAD_M x THREAD_N elements in registers.
Limit: float32 multiply-adds, no tensor cores; the hidden layer goes through memory.
Try first: larger tiles with THREAD_M and THREAD_N of 8; then tensor cores (mma.h) for float16 and bfloat16.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "fused_mlp"
BACKEND = "cuda"

TILE_M = 64
TILE_N = 64
TILE_K = 16
THREAD_M = 4  # elements per thread, down; divides TILE_M
THREAD_N = 4  # and across; divides TILE_N
BLOCK_SIZE = (TILE_M // THREAD_M) * (TILE_N // THREAD_N)

CUDA_SRC = r"""
constexpr int COLUMNS = TILE_N / THREAD_N, ROWS = TILE_M / THREAD_M;
enum Activation { SILU = 0, GELU = 1, RELU = 2 };

__device__ float activate(float x, int activation) {
    if (activation == SILU) return x / (1.0f + expf(-x));
    if (activation == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    return fmaxf(x, 0.0f);
}

// tile[k][i] = A[first + i, first_k + k], zero outside of A[n_rows, K]; WIDTH rows of A.
template <int WIDTH, typename T>
__device__ void load_tile(float (*tile)[WIDTH + 1], const T* A, int64_t first, int64_t first_k, int64_t n_rows,
                          int64_t K) {
    for (int i = threadIdx.x; i < WIDTH * TILE_K; i += BLOCK_SIZE) {
        const int64_t row = first + i / TILE_K, k = first_k + i % TILE_K;
        tile[i % TILE_K][i / TILE_K] = row < n_rows && k < K ? to_float(A[row * K + k]) : 0.0f;
    }
}

// acc += a_tile.T @ b_tile for the elements of this thread
__device__ void multiply_tiles(float (*a_tile)[TILE_M + 1], float (*b_tile)[TILE_N + 1],
                               float (&acc)[THREAD_M][THREAD_N]) {
    const int row = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;
    for (int k = 0; k < TILE_K; ++k) {
        float a[THREAD_M], b[THREAD_N];
        for (int i = 0; i < THREAD_M; ++i) a[i] = a_tile[k][row + i * ROWS];
        for (int j = 0; j < THREAD_N; ++j) b[j] = b_tile[k][column + j * COLUMNS];
        for (int i = 0; i < THREAD_M; ++i)
            for (int j = 0; j < THREAD_N; ++j) acc[i][j] += a[i] * b[j];
    }
}

// hidden[M, F] = act(x @ w_gate.T) * (x @ w_up.T)
template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE)
gate_and_up(const T* x, const T* w_gate, const T* w_up, float* hidden, int64_t M, int64_t F, int64_t K,
            int activation) {
    __shared__ float x_tile[TILE_K][TILE_M + 1], gate_tile[TILE_K][TILE_N + 1], up_tile[TILE_K][TILE_N + 1];
    const int64_t n_tiles = (F + TILE_N - 1) / TILE_N;
    const int64_t first_m = blockIdx.x / n_tiles * TILE_M, first_f = blockIdx.x % n_tiles * TILE_N;

    float gate[THREAD_M][THREAD_N] = {}, up[THREAD_M][THREAD_N] = {};
    for (int64_t k = 0; k < K; k += TILE_K) {
        load_tile<TILE_M>(x_tile, x, first_m, k, M, K);
        load_tile<TILE_N>(gate_tile, w_gate, first_f, k, F, K);
        load_tile<TILE_N>(up_tile, w_up, first_f, k, F, K);
        __syncthreads();
        multiply_tiles(x_tile, gate_tile, gate);
        multiply_tiles(x_tile, up_tile, up);
        __syncthreads();  // before the tiles are overwritten
    }
#pragma unroll  // so that the sums stay in registers
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) {
            const int64_t m = first_m + threadIdx.x / COLUMNS + i * ROWS;
            const int64_t f = first_f + threadIdx.x % COLUMNS + j * COLUMNS;
            if (m < M && f < F) hidden[m * F + f] = activate(gate[i][j], activation) * up[i][j];
        }
}

// y[M, N] = hidden @ w_down.T
template <typename T>
__global__ void __launch_bounds__(BLOCK_SIZE)
down(const float* hidden, const T* w_down, T* y, int64_t M, int64_t N, int64_t F) {
    __shared__ float hidden_tile[TILE_K][TILE_M + 1], down_tile[TILE_K][TILE_N + 1];
    const int64_t n_tiles = (N + TILE_N - 1) / TILE_N;
    const int64_t first_m = blockIdx.x / n_tiles * TILE_M, first_n = blockIdx.x % n_tiles * TILE_N;

    float acc[THREAD_M][THREAD_N] = {};
    for (int64_t f = 0; f < F; f += TILE_K) {
        load_tile<TILE_M>(hidden_tile, hidden, first_m, f, M, F);
        load_tile<TILE_N>(down_tile, w_down, first_n, f, N, F);
        __syncthreads();
        multiply_tiles(hidden_tile, down_tile, acc);
        __syncthreads();  // before the tiles are overwritten
    }
#pragma unroll  // so that the sums stay in registers
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) {
            const int64_t m = first_m + threadIdx.x / COLUMNS + i * ROWS;
            const int64_t n = first_n + threadIdx.x % COLUMNS + j * COLUMNS;
            if (m < M && n < N) y[m * N + n] = from_float<T>(acc[i][j]);
        }
}
"""

ACTIVATIONS = {"silu": 0, "gelu": 1, "relu": 2}
SIZES = {"TILE_M": TILE_M, "TILE_N": TILE_N, "TILE_K": TILE_K, "THREAD_M": THREAD_M, "THREAD_N": THREAD_N}
MODULE = cuda.compile(CUDA_SRC, defines={**SIZES, "BLOCK_SIZE": BLOCK_SIZE})
gate_and_up = MODULE.kernel("gate_and_up<T>", "T*", "T*", "T*", "float32*", "int64", "int64", "int64", "int32")
down = MODULE.kernel("down<T>", "float32*", "T*", "T*", "int64", "int64", "int64")


def kernel_fn(x, w_gate, w_up, w_down, activation="silu"):
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is not supported; one of {', '.join(ACTIVATIONS)}")
    x, w_gate, w_up, w_down = x.contiguous(), w_gate.contiguous(), w_up.contiguous(), w_down.contiguous()
    F, K = w_gate.shape
    N = w_down.shape[0]
    y = torch.empty((*x.shape[:-1], N), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    M = y.numel() // N
    hidden = torch.empty((M, F), dtype=torch.float32, device=x.device)
    rows_of_tiles = -(-M // TILE_M)
    if F > 0:
        code = ACTIVATIONS[activation]
        gate_and_up[rows_of_tiles * -(-F // TILE_N), BLOCK_SIZE](x, w_gate, w_up, hidden, M, F, K, code)
    down[rows_of_tiles * -(-N // TILE_N), BLOCK_SIZE](hidden, w_down, y, M, N, F)
    return y
