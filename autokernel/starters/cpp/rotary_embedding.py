"""Starter: rotary position embedding, of neighbours or of halves, on a CPU.

    y[b, h, s, j] = x[b, h, s, j] * cos[s, i] - x[b, h, s, k] * sin[s, i]
    y[b, h, s, k] = x[b, h, s, j] * sin[s, i] + x[b, h, s, k] * cos[s, i]
    with (j, k) = (2i, 2i + 1), or (i, i + D/2) if not interleaved

Cost: 3 FLOP and 2 * itemsize bytes per element, so memory bandwidth is the bound.
Plan: one row x[b, h, s, :] after the other, where it lies, PAIRS pairs at a time, in float32.
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
void rotate_neighbours(const T* __restrict x, const T* __restrict cos, const T* __restrict sin, T* __restrict y) {
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

template <int N, typename T>
void rotate_halves(const T* __restrict x, const T* __restrict cos, const T* __restrict sin, T* __restrict y,
                   int64_t half) {
    float a[N], b[N], c[N], s[N];
    for (int i = 0; i < N; ++i) a[i] = to_float(x[i]);
    for (int i = 0; i < N; ++i) b[i] = to_float(x[half + i]);
    for (int i = 0; i < N; ++i) c[i] = to_float(cos[i]);
    for (int i = 0; i < N; ++i) s[i] = to_float(sin[i]);
    for (int i = 0; i < N; ++i) y[i] = from_float<T>(a[i] * c[i] - b[i] * s[i]);
    for (int i = 0; i < N; ++i) y[half + i] = from_float<T>(a[i] * s[i] + b[i] * c[i]);
}

template <int N, typename T>
void rotate_pairs(const T* x, const T* cos, const T* sin, T* y, int64_t i, int64_t n_pairs, bool interleaved) {
    if (interleaved) rotate_neighbours<N>(x + 2 * i, cos + i, sin + i, y + 2 * i);
    else rotate_halves<N>(x + i, cos + i, sin + i, y + i, n_pairs);
}

// x is [batch, heads, n_positions, 2 * n_pairs] with strides in elements, the last one 1; y is contiguous; cos and
// sin are [n_positions, n_pairs].
extern "C" void rotate(int dtype, const void* x, const void* cos, const void* sin, void* y, int64_t batch,
                       int64_t heads, int64_t n_positions, int64_t n_pairs, int64_t stride_b, int64_t stride_h,
                       int64_t stride_s, int64_t interleaved) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(batch * heads * n_positions, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const int64_t position = row % n_positions, head = row / n_positions;
                const T* from = (const T*)x + head / heads * stride_b + head % heads * stride_h + position * stride_s;
                const T *c = (const T*)cos + position * n_pairs, *s = (const T*)sin + position * n_pairs;
                T* to = (T*)y + row * 2 * n_pairs;
                int64_t i = 0;
                for (; i + PAIRS <= n_pairs; i += PAIRS) rotate_pairs<PAIRS>(from, c, s, to, i, n_pairs, interleaved);
                for (; i < n_pairs; ++i) rotate_pairs<1>(from, c, s, to, i, n_pairs, interleaved);
            }
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "PAIRS": PAIRS})
rotate = MODULE.function("rotate", "dtype", *["T*"] * 4, *["int64"] * 8)


def kernel_fn(x, cos, sin, interleaved=True):
    batch, heads, positions, dim = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    by_position = x.transpose(1, 2)  # models often have the heads of a position side by side
    memory = by_position if by_position.is_contiguous() else x.contiguous()
    strides = (memory.transpose(1, 2) if memory is by_position else memory).stride()[:3]
    rotate(x.dtype, memory, cos.contiguous(), sin.contiguous(), y, batch, heads, positions, dim // 2, *strides,
           int(interleaved))  # fmt: skip
    return y
