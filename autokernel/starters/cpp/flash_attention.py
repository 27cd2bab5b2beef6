"""Starter: scaled dot-product attention, on a CPU.

    O[b, h, i, :] = sum over j of P[i, j] * V[b, h, j, :]
    P[i, :] = softmax over j (j <= i if causal) of sm_scale * dot(Q[b, h, i, :], K[b, h, j, :])

Cost: 4 * B * H * S * S * D FLOP, half of it if causal; the float32 multiply-add rate is the bound.
Plan: one head after the other, its K and V as float32; for one query after the other its scores, their softmax
    and the weighted sum of V, all in float32.
Limit: with LANES = 1 each addition of a dot product waits for the one before it; one thread; every query reads all
    of K and V again.
Try first: more LANES (16 or 32), NUM_THREADS, VECTOR_EXP; then several queries per reading of K and V.
"""

import torch

from autokernel.backends import cpp

KERNEL_TYPE = "flash_attention"
BACKEND = "cpp"

NUM_THREADS = 1
LANES = 1  # partial sums of a dot product, which g++ keeps in vector registers
VECTOR_EXP = False  # the header's vectorisable exp (within 2 ulp) instead of std::exp

CPP_SRC = r"""
inline float exponential(float x) { return VECTOR_EXP ? vector_exp(x) : std::exp(x); }

inline float dot(const float* a, const float* b, int64_t n) {
    float partial[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; ++lane) partial[lane] += a[i + lane] * b[i + lane];
    float sum = 0.0f;
    for (float value : partial) sum += value;
    for (; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

// out[:] = sum over j of softmax(scale * dot(q, K[j, :]))[j] * V[j, :], for n_keys keys
void attend(const float* q, const float* K, const float* V, float* scores, float* out,
            int64_t n_keys, int64_t D, float scale) {
    float largest = -INFINITY;
    for (int64_t j = 0; j < n_keys; ++j) {
        scores[j] = scale * dot(q, K + j * D, D);
        largest = std::max(largest, scores[j]);
    }
    for (int64_t j = 0; j < n_keys; ++j) scores[j] = exponential(scores[j] - largest);
    float sum = 0.0f;
    for (int64_t d = 0; d < D; ++d) out[d] = 0.0f;
    for (int64_t j = 0; j < n_keys; ++j) {
        const float weight = scores[j];
        sum += weight;
        for (int64_t d = 0; d < D; ++d) out[d] += weight * V[j * D + d];
    }
    for (int64_t d = 0; d < D; ++d) out[d] /= sum;
}

template <typename T> void widen(const T* in, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = to_float(in[i]);
}

template <typename T>
void attention_head(const T* Q, const T* K, const T* V, T* O, int64_t S, int64_t D, float scale, int causal) {
    std::vector<float> keys(S * D), values(S * D), query(D), scores(S), out(D);
    widen(K, keys.data(), S * D);
    widen(V, values.data(), S * D);
    for (int64_t i = 0; i < S; ++i) {
        widen(Q + i * D, query.data(), D);
        attend(query.data(), keys.data(), values.data(), scores.data(), out.data(), causal ? i + 1 : S, D, scale);
        for (int64_t d = 0; d < D; ++d) O[i * D + d] = from_float<T>(out[d]);
    }
}

extern "C" void attention(int dtype, const void* Q, const void* K, const void* V, void* O,
                          int64_t n_heads, int64_t S, int64_t D, float scale, int causal) {
    dispatch(dtype, [&](auto zero) {
        using T = decltype(zero);
        parallel_for(n_heads, NUM_THREADS, [&](int64_t begin, int64_t end) {
            for (int64_t head = begin; head < end; ++head) {
                const int64_t first = head * S * D;
                attention_head((const T*)Q + first, (const T*)K + first, (const T*)V + first, (T*)O + first,
                               S, D, scale, causal);
            }
        });
    });
}
"""

MODULE = cpp.compile(CPP_SRC, defines={"NUM_THREADS": NUM_THREADS, "LANES": LANES, "VECTOR_EXP": VECTOR_EXP})
attention = MODULE.function("attention", "dtype", "T*", "T*", "T*", "T*", *["int64"] * 3, "float32", "int32")


def kernel_fn(Q, K, V, causal=True, sm_scale=None):
    Q, K, V = Q.contiguous(), K.contiguous(), V.contiguous()
    output = torch.empty_like(Q)
    batch, heads, S, D = Q.shape
    scale = D**-0.5 if sm_scale is None else sm_scale
    attention(Q.dtype, Q, K, V, output, batch * heads, S, D, scale, causal)
    return output
