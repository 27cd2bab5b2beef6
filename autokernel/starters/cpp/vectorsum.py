"""Starter: sum of one long vector, on a CPU.

    y = sum(x)

Cost: 1 FLOP and itemsize bytes per element, so memory bandwidth is the bound.
Plan: the vector in blocks of BLOCK elements, each added up in float32; then the blocks' sums, in order.  Blocks do
    not depend on NUM_THREADS, so the result does not either.
Limit: with LANES = 1 each addition waits for the one before it; one thread.
Try first: more LANES (16 to 64), then NUM_THREADS and PREFETCH; UNROLL.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "vectorsum"
BACKEND = "cpp"

NUM_THREADS = 1
BLOCK = 16384  # elements
LANES = 1  # partial sums of a block, which g++ keeps in vector registers
PREFETCH = 0  # elements fetched ahead of those that are added; one of 0, 256, 1024, 4096
UNROLL = False  # let g++ unroll the loops

CPP_SRC = r"""
template <typename T> float block_sum(const T* x, int64_t n) {
    float partial[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        if (PREFETCH > 0) prefetch(x + i + PREFETCH, LANES);
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += to_float(x[i + lane]);
    }
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    for (; i < n; ++i) sum += to_float(x[i]);
    return sum;
}

extern "C" void vector_sum(int dtype, const void* x, float* y, int64_t n) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        const int64_t n_blocks = (n + BLOCK - 1) / BLOCK;
        std::vector<float> sums(n_blocks);
        parallel_for(n_blocks, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; ++block)
                sums[block] = block_sum((const T*)x + block * BLOCK, std::min<int64_t>(BLOCK, n - block * BLOCK));
        });
        y[0] = block_sum(sums.data(), n_blocks);
    });
}
"""

DEFINES = {"NUM_THREADS": NUM_THREADS, "BLOCK": BLOCK, "LANES": LANES, "PREFETCH": PREFETCH}
MODULE = cpp.compile(CPP_SRC, defines=DEFINES, flags=["-funroll-loops"] if UNROLL else [])
vector_sum = MODULE.function("vector_sum", "dtype", "T*", "float32*", "int64")


def kernel_fn(x):
    x = x.contiguous()
    y = torch.empty((), dtype=torch.float32, device=x.device)
    vector_sum(x.dtype, x, y, x.numel())
    return y
