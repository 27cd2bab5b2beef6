"""Starter: scaled dot-product attention, in CUDA C++.

    O[b, h, i, :] = sum over j of P[i, j] * V[b, h, j, :]
    P[i, :] = softmax over j (j <= i if causal) of sm_scale * dot(Q[b, h, i, :], K[b, h, j, :])

Cost: 4 * B * H * S * S * D FLOP, half of it if causal; compute is the bound.
Plan: one warp for QUERIES_PER_WARP queries, WARPS warps per block, 32 keys at a time in shared memory.  Each lane
    takes the score of one key; the softmax is kept up to date with a running maximum, and O in registers.
Limit: float32 multiply-adds, no tensor cores; D up to MAX_HEAD_DIM.
Try first: more QUERIES_PER_WARP (4 or 8), so that a key read from shared memory serves several; WARPS; then tensor
    cores (mma.h) for float16 and bfloat16.
Source: T. Dao, FlashAttention-2, arXiv 2307.08691, algorithm 1.
"""

import torch

from autokernel.backends import cuda

KERNEL_TYPE = "flash_attention"
BACKEND = "cuda"

WARPS = 8
QUERIES_PER_WARP = 1
MAX_HEAD_DIM = 256  # a multiple of 32; each lane keeps MAX_HEAD_DIM / 32 elements of O per query

CUDA_SRC = r"""
constexpr int QUERIES = WARPS * QUERIES_PER_WARP, KEYS = 32, PARTS = MAX_HEAD_DIM / 32;

__device__ float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
attention(const T* Q, const T* K, const T* V, T* O, int64_t S, int D, float scale, int causal) {
    extern __shared__ float shared[];
    const int row_size = D + 1;  // + 1: lanes that read one column of different rows use different banks
    float* queries = shared;  // [QUERIES][row_size]
    float* keys = queries + QUERIES * row_size;  // [KEYS][row_size]
    float* values = keys + KEYS * row_size;  // [KEYS][row_size]

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t n_tiles = (S + QUERIES - 1) / QUERIES;
    const int64_t head = blockIdx.x / n_tiles * S * D;  // 64-bit: B * H * S * D can pass 2**31
    const int64_t first = blockIdx.x % n_tiles * QUERIES;
    for (int i = threadIdx.x; i < QUERIES * D; i += WARPS * 32) {
        const int64_t query = first + i / D;
        queries[i / D * row_size + i % D] = query < S ? to_float(Q[head + query * D + i % D]) : 0.0f;
    }

    float acc[QUERIES_PER_WARP][PARTS] = {}, largest[QUERIES_PER_WARP], sum[QUERIES_PER_WARP] = {};
    for (int q = 0; q < QUERIES_PER_WARP; ++q) largest[q] = -INFINITY;

    const int64_t n_keys = causal ? min(S, first + QUERIES) : S;  // no query of the block looks further
    for (int64_t first_key = 0; first_key < n_keys; first_key += KEYS) {
        __syncthreads();  // the queries are there, and nobody still reads the last keys
        for (int i = threadIdx.x; i < KEYS * D; i += WARPS * 32) {
            const int64_t key = first_key + i / D;
            const int at = i / D * row_size + i % D;
            keys[at] = key < S ? to_float(K[head + key * D + i % D]) : 0.0f;
            values[at] = key < S ? to_float(V[head + key * D + i % D]) : 0.0f;
        }
        __syncthreads();

        float score[QUERIES_PER_WARP] = {};
        for (int d = 0; d < D; ++d) {
            const float key = keys[lane * row_size + d];
            for (int q = 0; q < QUERIES_PER_WARP; ++q)
                score[q] += queries[(warp * QUERIES_PER_WARP + q) * row_size + d] * key;
        }
        for (int q = 0; q < QUERIES_PER_WARP; ++q) {
            const int64_t query = first + warp * QUERIES_PER_WARP + q, key = first_key + lane;
            const bool seen = key < S && (!causal || key <= query);
            const float scaled = seen ? score[q] * scale : -INFINITY;
            const float new_largest = fmaxf(largest[q], warp_max(scaled));
            const float shift = new_largest == -INFINITY ? 0.0f : new_largest;  // no key yet: avoid inf - inf
            const float weight = expf(scaled - shift), decay = expf(largest[q] - shift);
            sum[q] = sum[q] * decay + warp_sum(weight);
            largest[q] = new_largest;
            score[q] = weight;
            for (int part = 0; part < PARTS; ++part) acc[q][part] *= decay;
        }
        for (int j = 0; j < KEYS; ++j) {
            float weight[QUERIES_PER_WARP];
            for (int q = 0; q < QUERIES_PER_WARP; ++q) weight[q] = __shfl_sync(0xffffffffu, score[q], j);
            for (int part = 0; part < PARTS; ++part) {
                const int d = part * 32 + lane;
                const float value = d < D ? values[j * row_size + d] : 0.0f;
                for (int q = 0; q < QUERIES_PER_WARP; ++q) acc[q][part] += weight[q] * value;
            }
        }
    }

    for (int q = 0; q < QUERIES_PER_WARP; ++q) {
        const int64_t query = first + warp * QUERIES_PER_WARP + q;
        if (query >= S) break;
        for (int part = 0; part < PARTS; ++part) {
            const int d = part * 32 + lane;
            if (d < D) O[head + query * D + d] = from_float<T>(acc[q][part] / sum[q]);
        }
    }
}
"""

SIZES = {"WARPS": WARPS, "QUERIES_PER_WARP": QUERIES_PER_WARP, "MAX_HEAD_DIM": MAX_HEAD_DIM}
MODULE = cuda.compile(CUDA_SRC, defines=SIZES)
attention = MODULE.kernel("attention<T>", "T*", "T*", "T*", "T*", "int64", "int32", "float32", "int32")


def kernel_fn(Q, K, V, causal=True, sm_scale=None):
    Q, K, V = Q.contiguous(), K.contiguous(), V.contiguous()
    batch, heads, S, D = Q.shape
    if D > MAX_HEAD_DIM:
        raise ValueError(f"head size {D} is above MAX_HEAD_DIM = {MAX_HEAD_DIM}; raise that constant")
    output = torch.empty_like(Q)
    if output.numel() > 0:
        scale = D**-0.5 if sm_scale is None else sm_scale
        queries = WARPS * QUERIES_PER_WARP
        shared_bytes = 4 * (queries + 2 * 32) * (D + 1)
        n_blocks = batch * heads * -(-S // queries)
        attention[n_blocks, WARPS * 32, shared_bytes](Q, K, V, output, S, D, scale, causal)
    return output
