"""Starter: rotary position embedding, of neighbours or of halves, in CUDA C++.

    y[b, h, s, j] = x[b, h, s, j] * cos[s, i] - x[b, h, s, k] * sin[s, i]
    y[b, h, s, k] = x[b, h, s, j] * sin[s, i] + x[b, h, s, k] * cos[s, i]
    with (j, k) = (2i, 2i + 1), or (i, i + D/2) if not interleaved

Cost: 3 FLOP and 2 * itemsize bytes per element: below 1 FLOP/byte, far below any ridge point.
Plan: one thread for PAIRS_PER_THREAD pairs, BLOCK_SIZE pairs apart, so that a warp reads neighbouring pairs.
Limit: the two numbers of a pair are separate loads; a 64-bit division per pair finds its place in the tables.
Try first: PAIRS_PER_THREAD, BLOCK_SIZE; one load and one store per pair or per 16 bytes where aligned; a grid of
    rows, so that no division is needed.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "rotary_embedding"
BACKEND = "cuda"

BLOCK_SIZE = 256
PAIRS_PER_THREAD = 1

CUDA_SRC = r"""
// x and y are [n_rows, n_pairs, 2], or [n_rows, 2, n_pairs] if not INTERLEAVED, with n_rows = B * H * S; cos and sin
// are [n_positions, n_pairs].
template <typename T, bool INTERLEAVED>
__global__ void __launch_bounds__(BLOCK_SIZE)
rotate(const T* x, const T* cos, const T* sin, T* y, int64_t n_total, int64_t n_positions, int64_t n_pairs) {
    const int64_t begin = blockIdx.x * int64_t(BLOCK_SIZE * PAIRS_PER_THREAD) + threadIdx.x;
    for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
        const int64_t pair = begin + i * BLOCK_SIZE;
        if (pair >= n_total) return;
        const int64_t in_tables = pair % (n_positions * n_pairs);
        const float c = to_float(cos[in_tables]), s = to_float(sin[in_tables]);
        const int64_t first = INTERLEAVED ? 2 * pair : 2 * pair - pair % n_pairs;
        const int64_t second = first + (INTERLEAVED ? 1 : n_pairs);
        const float a = to_float(x[first]), b = to_float(x[second]);
        y[first] = from_float<T>(a * c - b * s);
        y[second] = from_float<T>(a * s + b * c);
    }
}
"""

MODULE = cuda.compile(CUDA_SRC, defines={"BLOCK_SIZE": BLOCK_SIZE, "PAIRS_PER_THREAD": PAIRS_PER_THREAD})
POINTERS_AND_SIZES = ("T*", "T*", "T*", "T*", "int64", "int64", "int64")
rotate_neighbours = MODULE.kernel("rotate<T, true>", *POINTERS_AND_SIZES)
rotate_halves = MODULE.kernel("rotate<T, false>", *POINTERS_AND_SIZES)


def kernel_fn(x, cos, sin, interleaved=True):
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    y = torch.empty_like(x)
    positions, n_pairs = x.shape[-2], x.shape[-1] // 2
    n_total = x.numel() // 2
    rotate = rotate_neighbours if interleaved else rotate_halves
    if n_total > 0:
        per_block = BLOCK_SIZE * PAIRS_PER_THREAD
        rotate[-(-n_total // per_block), BLOCK_SIZE](x, cos, sin, y, n_total, positions, n_pairs)
    return y
