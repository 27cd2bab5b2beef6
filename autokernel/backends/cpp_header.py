"""The C++ text that stands before every CPP_SRC: half-precision types, dtype dispatch, threads.

Plain integer arithmetic does the conversions, because g++ turns a loop over it into vector
instructions; a loop over ``_Float16`` it does not (seen with g++ 12.2).  Threads end with the call;
OpenMP would keep a pool spinning after it, which would run into the next kernel's time.  They are
POSIX threads, because ``<thread>`` would take a fifth of the compiler's time for a small kernel.
"""

from __future__ import annotations

__all__ = ["AUTOKERNEL_CPP_HEADER", "DTYPE_CODES"]

DTYPE_CODES = {"float32": 0, "float16": 1, "bfloat16": 2}

AUTOKERNEL_CPP_HEADER = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <pthread.h>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct float16 { uint16_t bits; };
struct bfloat16 { uint16_t bits; };

inline uint32_t bits_of(float value) { uint32_t bits; std::memcpy(&bits, &value, 4); return bits; }
inline float float_of(uint32_t bits) { float value; std::memcpy(&value, &bits, 4); return value; }

// Masks instead of ?:, which g++ may turn into branches and then not vectorise.
inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
    const uint32_t mask = -uint32_t(condition);
    return (yes & mask) | (no & ~mask);
}

inline float to_float(float value) { return value; }

inline float to_float(bfloat16 value) { return float_of(uint32_t(value.bits) << 16); }

inline float to_float(float16 value) {
    const uint32_t magnitude = uint32_t(value.bits & 0x7fff) << 13;
    const uint32_t rebias = 112u << 23;  // exponent bias 127 instead of 15
    const uint32_t smallest = 113u << 23;  // 2**-14 in float32
    const uint32_t subnormal = bits_of(float_of(magnitude + smallest) - float_of(smallest));
    uint32_t bits = magnitude + rebias;
    bits = select(magnitude >= (0x7c00u << 13), bits + rebias, bits);  // infinity, NaN
    bits = select(magnitude < (0x0400u << 13), subnormal, bits);
    return float_of(bits | (uint32_t(value.bits & 0x8000) << 16));
}

// from_float<T>: rounds to nearest, ties to even.
template <typename T> inline T from_float(float value);

template <> inline float from_float<float>(float value) { return value; }

template <> inline bfloat16 from_float<bfloat16>(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return bfloat16{uint16_t(select(is_nan, bits | 0x00400000u, rounded) >> 16)};
}

template <> inline float16 from_float<float16>(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t magic = 126u << 23;  // 0.5: adding it leaves a subnormal float16 in the low bits
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(magic)) - magic;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t half = select(magnitude < (113u << 23), subnormal, normal);
    half = select(magnitude >= (143u << 23), 0x7c00u, half);  // 65536 and above, infinity
    half = select(magnitude > 0x7f800000u, 0x7e00u, half);  // NaN
    return float16{uint16_t(half | ((bits >> 16) & 0x8000u))};
}

// dispatch(dtype, [&](auto zero) { using T = decltype(zero); ... }) calls the body with a value of the dtype's type.
template <typename Body> inline void dispatch(int dtype, Body body) {
    switch (dtype) {
        case 0: body(float{}); return;
        case 1: body(float16{}); return;
        case 2: body(bfloat16{}); return;
        default: std::abort();
    }
}

// exp(x) in plain arithmetic, so that g++ vectorises a loop over it: within 2 ulp, 0 below -86.9, NaN stays NaN.
inline float vector_exp(float x) {
    const float clamped = std::min(std::max(-86.9f, x), 88.8f);  // NaN becomes -86.9
    const int32_t exponent = int32_t(clamped * 1.44269504f + (clamped < 0.0f ? -0.5f : 0.5f));  // to nearest
    const float n = float(exponent);
    const float r = std::fma(n, -1.42860677e-6f, std::fma(n, -0.693145752f, clamped));  // x - n * log(2)
    float p = 1.98756915e-4f;
    p = std::fma(p, r, 1.39819995e-3f);
    p = std::fma(p, r, 8.33345193e-3f);
    p = std::fma(p, r, 4.16657959e-2f);
    p = std::fma(p, r, 1.66666655e-1f);
    p = std::fma(p, r, 5.00000001e-1f);
    p = std::fma(p * r, r, r) + 1.0f;
    const float half_power = float_of(uint32_t(exponent + 126) << 23);  // 2**128 is no float32
    const uint32_t y = select(x < -86.9f, 0u, bits_of(p * half_power * 2.0f));
    return float_of(select(x != x, bits_of(x), y));
}

// prefetch(first, n): asks for n elements, which need not exist, to be brought into the second-level cache.
template <typename T> inline void prefetch(const T* first, int64_t n) {
    const char* bytes = (const char*)first;
    for (int64_t i = 0; i < n * int64_t(sizeof(T)); i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

// copy_streaming(to, from, n): a copy that goes around the caches where the processor can, for what nobody reads soon.
// parallel_for waits for its end; outside of it, call finish_streaming() before another thread reads.
template <typename T> inline void copy_streaming(T* to, const T* from, int64_t n) {
#if defined(__SSE2__)
    char* target = (char*)to;
    const char* source = (const char*)from;
    const int64_t n_bytes = n * sizeof(T);
    int64_t i = std::min<int64_t>(n_bytes, -(uintptr_t)to % 16);  // streaming stores are aligned
    std::memcpy(target, source, i);
    for (; i + 16 <= n_bytes; i += 16)
        _mm_stream_si128((__m128i*)(target + i), _mm_loadu_si128((const __m128i*)(source + i)));
    std::memcpy(target + i, source + i, n_bytes - i);
#else
    std::memcpy(to, from, n * sizeof(T));
#endif
}

inline void finish_streaming() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// parallel_for(n, n_threads, [&](int64_t begin, int64_t end) { ... }) splits [0, n) into one range per thread.
// The ranges depend on n and n_threads only.  All threads have ended when it returns.
template <typename Body> struct ThreadRange {
    const Body* body;
    int64_t begin, end;
    pthread_t thread;
    bool started;
};

template <typename Body> void* run_range(void* argument) {
    const auto* range = (const ThreadRange<Body>*)argument;
    (*range->body)(range->begin, range->end);
    finish_streaming();
    return nullptr;
}

template <typename Body> inline void parallel_for(int64_t n, int n_threads, const Body& body) {
    const int64_t n_ranges = std::max<int64_t>(1, std::min<int64_t>(n, n_threads));
    std::vector<ThreadRange<Body>> ranges(n_ranges);
    for (int64_t i = 0; i < n_ranges; ++i) {
        auto& range = ranges[i];
        range = {&body, n * i / n_ranges, n * (i + 1) / n_ranges, {}, false};
        range.started = i > 0 && pthread_create(&range.thread, nullptr, run_range<Body>, &range) == 0;
    }
    for (auto& range : ranges)
        if (!range.started) run_range<Body>(&range);  // the first, and those for which no thread was to be had
    for (auto& range : ranges)
        if (range.started) pthread_join(range.thread, nullptr);
}
"""
