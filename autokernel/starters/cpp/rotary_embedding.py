"""Starter: rotary position embedding of interleaved pairs, on a CPU.

    y[b, h, s, 2i]     = x[b, h, s, 2i] * cos[s, i] - x[b, h, s, 2i + 1] * sin[s, i]
    y[b, h, s, 2i + 1] = x[b, h, s, 2i] * sin[s, i] + x[b, h, s, 2i + 1] * cos[s, i]

Cost: 3 FLOP and 2 * itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row x[b, h, s, :] after the other, pair by pair, in float32.
Limit: one thread; PAIRS = 1 keeps g++ from reading pairs as vectors.
Try first: more PAIRS (8 to 32), NUM_THREADS; then all heads of one position together, so that the tables stay
    in registers.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rotary_embedding"
BACKEND = "cpp"

NUM_THREADS = 1
PAIRS = 1  # pairs read before any is written, so that g++ may use vector registers

CPP_SRC = r"""
template <int N, typename T> void rotate_pairs(const T* x, const T* cos, const T* sin, T* y) {
    float even[N], odd[N];
    for (int i = 0; i < N; ++i) {
        const float x_even = to_float(x[2 * i]), x_odd = to_float(x[2 * i + 1]);
        even[i] = x_even * to_float(cos[i]) - x_odd * to_float(sin[i]);
        odd[i] = x_even * to_float(sin[i]) + x_odd * to_float(cos[i]);
    }
    for (int i = 0; i < N; ++i) {
        y[2 * i] = from_float<T>(even[i]);
        y[2 * i + 1] = from_float<T>(odd[i]);
    }
}

template <typename T> void rotate_row(const T* x, const T* cos, const T* sin, T* y, int64_t n_pairs) {
    int64_t i = 0;
    for (; i + PAIRS <= n_pairs; i += PAIRS) rotate_pairs<PAIRS>(x + 2 * i, cos + i, sin + i, y + 2 * i);
    for (; i < n_pairs; ++i) rotate_pairs<1>(x + 2 * i, cos + i, sin + i, y + 2 * i);
}

// x and y are [n_rows, 2 * n_pairs] with n_rows = B * H * S; cos and sin are [n_positions, n_pairs].
extern "C" void rotate(int dtype, const void* x, const void* cos, const void* sin, void* y,
                       int64_t n_rows, int64_t n_positions, int64_t n_pairs) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_rows, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const int64_t in_tables = row % n_positions * n_pairs;
                rotate_row((const T*)x + row * 2 * n_pairs, (const T*)cos + in_tables, (const T*)sin + in_tables,
                           (T*)y + row * 2 * n_pairs, n_pairs);
            }
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "PAIRS": PAIRS})
rotate = MODULE.function("rotate", "dtype", "T*", "T*", "T*", "T*", "int64", "int64", "int64")


def kernel_fn(x, cos, sin):
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    y = torch.empty_like(x)
    batch, heads, positions, dim = x.shape
    rotate(x.dtype, x, cos, sin, y, batch * heads * positions, positions, dim // 2)
    return y
