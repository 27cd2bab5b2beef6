"""Starter: rotary position embedding of interleaved pairs, on a CPU.

    y[b, h, s, 2i]     = x[b, h, s, 2i] * cos[s, i] - x[b, h, s, 2i + 1] * sin[s, i]
    y[b, h, s, 2i + 1] = x[b, h, s, 2i] * sin[s, i] + x[b, h, s, 2i + 1] * cos[s, i]

Cost: 3 FLOP and 2 * itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row x[b, h, s, :] after the other, PAIRS pairs at a time, in float32.
Limit: one thread; with PAIRS = 1 half precision is converted one element at a time.
Try first: NUM_THREADS, more PAIRS (16 to 64); then all heads of one position together, so that the tables are
    converted once.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "rotary_embedding"
BACKEND = "cpp"

NUM_THREADS = 1
PAIRS = 1  # pairs turned together, in vector registers if g++ can

CPP_SRC = r"""
// Loops of one kind each (convert, part the pairs, turn, convert): that is how g++ finds vector instructions.
template <int N, typename T>
void rotate_pairs(const T* __restrict x, const T* __restrict cos, const T* __restrict sin, T* __restrict y) {
    float in[2 * N], even[N], odd[N], c[N], s[N], out[2 * N];
    for (int i = 0; i < 2 * N; ++i) in[i] = to_float(x[i]);
    for (int i = 0; i < N; ++i) c[i] = to_float(cos[i]);
    for (int i = 0; i < N; ++i) s[i] = to_float(sin[i]);
    for (int i = 0; i < N; ++i) {
        even[i] = in[2 * i];
        odd[i] = in[2 * i + 1];
    }
    for (int i = 0; i < N; ++i) {
        out[2 * i] = even[i] * c[i] - odd[i] * s[i];
        out[2 * i + 1] = even[i] * s[i] + odd[i] * c[i];
    }
    for (int i = 0; i < 2 * N; ++i) y[i] = from_float<T>(out[i]);
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
