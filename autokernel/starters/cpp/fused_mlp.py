"""Starter: gated feed-forward block, on a CPU.

    y = (act(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T

Cost: 2 * M * F * (2 * K + N) FLOP; for many rows the float32 multiply-add rate is the bound, for few the weights'
    memory traffic.
Plan: x as float32; for one row of the weights after the other, its products with all rows of x; the hidden layer
    stays in float32 and is multiplied with w_down in the same way.
Limit: with LANES = 1 each addition waits for the one before it; one thread.
Try first: more LANES (16 to 64), TILE_M rows of x per reading of a weight (2 to 8), NUM_THREADS.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "fused_mlp"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a dot product, which g++ keeps in vector registers
TILE_M = 1  # rows of x that share one reading of a weight

CPP_SRC = r"""
enum Activation { SILU = 0, GELU = 1, RELU = 2 };

inline float activate(float x, int activation) {
    if (activation == SILU) return x / (1.0f + std::exp(-x));
    if (activation == GELU) return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    return std::max(x, 0.0f);
}

// out[m] = dot(A[m, :], w) for ROWS rows of A[., K]
template <int ROWS> void dot_rows(const float* A, const float* w, float* out, int64_t K) {
    float partial[ROWS][LANES] = {};
    int64_t k = 0;
    for (; k + LANES <= K; k += LANES)
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < LANES; ++lane) partial[row][lane] += A[row * K + k + lane] * w[k + lane];
    for (int row = 0; row < ROWS; ++row) {
        float sum = 0.0f;
        for (float value : partial[row]) sum += value;
        for (int64_t rest = k; rest < K; ++rest) sum += A[row * K + rest] * w[rest];
        out[row] = sum;
    }
}

void dot_all_rows(const float* A, const float* w, float* out, int64_t M, int64_t K) {
    int64_t m = 0;
    for (; m + TILE_M <= M; m += TILE_M) dot_rows<TILE_M>(A + m * K, w, out + m, K);
    for (; m < M; ++m) dot_rows<1>(A + m * K, w, out + m, K);
}

template <typename T> void widen(const T* in, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
}

template <typename T>
void mlp(const T* x, const T* w_gate, const T* w_up, const T* w_down, T* y,
         int64_t M, int64_t K, int64_t F, int64_t N, int activation) {
    std::vector<float> wide(M * K), hidden(M * F);
    widen(x, wide.data(), M * K);
    parallel_for(F, NUM_THREADS, [&](int64_t begin, int64_t end) {
        std::vector<float> weight(K), gate(M), up(M);
        for (int64_t f = begin; f < end; ++f) {
            widen(w_gate + f * K, weight.data(), K);
            dot_all_rows(wide.data(), weight.data(), gate.data(), M, K);
            widen(w_up + f * K, weight.data(), K);
            dot_all_rows(wide.data(), weight.data(), up.data(), M, K);
            for (int64_t m = 0; m < M; ++m) hidden[m * F + f] = activate(gate[m], activation) * up[m];
        }
    });
    parallel_for(N, NUM_THREADS, [&](int64_t begin, int64_t end) {
        std::vector<float> weight(F), column(M);
        for (int64_t n = begin; n < end; ++n) {
            widen(w_down + n * F, weight.data(), F);
            dot_all_rows(hidden.data(), weight.data(), column.data(), M, F);
            for (int64_t m = 0; m < M; ++m) y[m * N + n] = from_float<T>(column[m]);
        }
    });
}

extern "C" void fused_mlp(int dtype, const void* x, const void* w_gate, const void* w_up, const void* w_down, void* y,
                          int64_t M, int64_t K, int64_t F, int64_t N, int activation) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        mlp((const T*)x, (const T*)w_gate, (const T*)w_up, (const T*)w_down, (T*)y, M, K, F, N, activation);
    });
}
"""

ACTIVATIONS = {"silu": 0, "gelu": 1, "relu": 2}
MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES, "TILE_M": TILE_M})
fused_mlp = MODULE.function("fused_mlp", "dtype", *["T*"] * 5, *["int64"] * 4, "int32")


def kernel_fn(x, w_gate, w_up, w_down, activation="silu"):
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is not supported; one of {', '.join(ACTIVATIONS)}")
    x, w_gate, w_up, w_down = x.contiguous(), w_gate.contiguous(), w_up.contiguous(), w_down.contiguous()
    hidden_size, K = w_gate.shape
    N = w_down.shape[0]
    y = torch.empty((*x.shape[:-1], N), dtype=x.dtype, device=x.device)
    n_rows = y.numel() // max(N, 1)
    fused_mlp(x.dtype, x, w_gate, w_up, w_down, y, n_rows, K, hidden_size, N, ACTIVATIONS[activation])
    return y
