// Vectors of the instruction set that this file is compiled for, and the few operations that have no operator.
//
// kernels.cpp is compiled once for each set. Everything here lives in a namespace of that set, so that the linker
// never mixes two versions of one inline function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef RATENORM_ISA
#error "RATENORM_ISA names the instruction set; CMakeLists.txt defines it"
#endif

namespace ratenorm::RATENORM_ISA {

#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define RATENORM_AVX512 1
inline constexpr int BYTES = 64;
#elif defined(__AVX2__)
inline constexpr int BYTES = 32;
#else
inline constexpr int BYTES = 16;
#endif

inline constexpr int LANES = BYTES / 4;      // 32-bit numbers of a vector
inline constexpr int SHORTS = BYTES / 2;     // 16-bit numbers of a vector
inline constexpr int WORD = 16;              // neurons of a word of spikes
inline constexpr int PARTS = WORD / LANES;   // vectors of 32-bit numbers that make up a word
inline constexpr int WIDE = 32;              // channels of a block whose weights have 16 bits
inline constexpr int SLICES = WIDE / SHORTS; // vectors of 16-bit numbers that make up such a block
#if defined(RATENORM_AVX512) || defined(__aarch64__)
inline constexpr int REGISTERS = 32;
#else
inline constexpr int REGISTERS = 16;
#endif

using Floats = float __attribute__((vector_size(BYTES)));
using Ints = int32_t __attribute__((vector_size(BYTES)));
using Shorts = int16_t __attribute__((vector_size(BYTES)));
using Bytes = uint8_t __attribute__((vector_size(BYTES)));
using FewShorts = int16_t __attribute__((vector_size(BYTES / 2))); // as many as there are 32-bit lanes

#define RATENORM_INLINE [[gnu::always_inline]] inline

template <class V> RATENORM_INLINE V load(const void* from) {
    V vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class V> RATENORM_INLINE void store(void* to, V vector) { std::memcpy(to, &vector, sizeof vector); }

template <int N, class F, int... I> RATENORM_INLINE void unroll_(F&& f, std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
}

// Calls f(0), f(1), … f(N - 1) with numbers known to the compiler: arrays indexed by them stay in registers.
template <int N, class F> RATENORM_INLINE void unroll(F&& f) {
    unroll_<N>(static_cast<F&&>(f), std::make_integer_sequence<int, N>{});
}

RATENORM_INLINE Floats splat(float value) { return Floats{} + value; }

// low += the even lanes, high += the odd lanes of a vector of 16-bit numbers.
RATENORM_INLINE void widen_add(Ints& low, Ints& high, Shorts sum) {
#if defined(RATENORM_AVX512)
    low = (Ints)_mm512_dpwssd_epi32((__m512i)low, (__m512i)sum, _mm512_set1_epi32(1));
    high = (Ints)_mm512_dpwssd_epi32((__m512i)high, (__m512i)sum, _mm512_set1_epi32(1 << 16));
#else
    using Unsigned = uint32_t __attribute__((vector_size(BYTES)));
    low = (Ints)((Unsigned)low + (Unsigned)((Ints)((Unsigned)sum << 16) >> 16));
    high = (Ints)((Unsigned)high + (Unsigned)((Ints)sum >> 16));
#endif
}

// As many whole numbers of 32 bits. (GCC makes detours of __builtin_convertvector here.)
RATENORM_INLINE Ints widened(FewShorts x) {
#if defined(RATENORM_AVX512)
    return (Ints)_mm512_cvtepi16_epi32((__m256i)x);
#elif defined(__AVX2__)
    return (Ints)_mm256_cvtepi16_epi32((__m128i)x);
#else
    return __builtin_convertvector(x, Ints);
#endif
}

// Which lanes of a vector are chosen.
#if defined(RATENORM_AVX512)
using Mask = __mmask16;
RATENORM_INLINE Mask at_least(Floats a, Floats b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
}
RATENORM_INLINE uint32_t bits(Mask mask) { return mask; }
RATENORM_INLINE Mask mask_of(uint32_t bits) { return static_cast<Mask>(bits); }
RATENORM_INLINE Floats pick(Mask mask, Floats value) { return (Floats)_mm512_maskz_mov_ps(mask, (__m512)value); }
RATENORM_INLINE Floats choose(Mask mask, Floats yes, Floats no) {
    return (Floats)_mm512_mask_blend_ps(mask, (__m512)no, (__m512)yes);
}
#else
using Mask = Ints;
RATENORM_INLINE Mask at_least(Floats a, Floats b) { return a >= b; }
RATENORM_INLINE Ints powers() {
    constexpr int32_t one[] = {1, 2, 4, 8, 16, 32, 64, 128};
    return load<Ints>(one);
}
RATENORM_INLINE uint32_t bits(Mask mask) {
#if defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
#elif defined(__SSE2__)
    return static_cast<uint32_t>(_mm_movemask_ps((__m128)mask));
#elif defined(__aarch64__)
    return static_cast<uint32_t>(vaddvq_s32((int32x4_t)(mask & powers())));
#else
    uint32_t found = 0;
    for (int i = 0; i < LANES; ++i) found |= static_cast<uint32_t>(mask[i] & 1) << i;
    return found;
#endif
}
RATENORM_INLINE Mask mask_of(uint32_t bits) { return ((Ints{} + static_cast<int32_t>(bits)) & powers()) != 0; }
RATENORM_INLINE Floats pick(Mask mask, Floats value) { return (Floats)((Ints)value & mask); }
RATENORM_INLINE Floats choose(Mask mask, Floats yes, Floats no) { return mask ? yes : no; }
#endif

// The numbers of sixteen neurons, a word of spikes.
struct Sixteen {
    Floats part[PARTS];
};

RATENORM_INLINE Sixteen load16(const float* from) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) { x.part[i] = load<Floats>(from + i * LANES); });
    return x;
}
RATENORM_INLINE void store16(float* to, const Sixteen& x) {
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) { store(to + i * LANES, x.part[i]); });
}
RATENORM_INLINE Sixteen operator+(const Sixteen& a, const Sixteen& b) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) { x.part[i] = a.part[i] + b.part[i]; });
    return x;
}
RATENORM_INLINE Sixteen operator*(const Sixteen& a, const Sixteen& b) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) { x.part[i] = a.part[i] * b.part[i]; });
    return x;
}
RATENORM_INLINE Sixteen pick16(uint32_t word, const Sixteen& value) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
        x.part[i] = pick(mask_of(word >> (i * LANES)), value.part[i]);
    });
    return x;
}
RATENORM_INLINE Sixteen splat16(float value) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) { x.part[i] = splat(value); });
    return x;
}
// Sixteen whole numbers as floats.
RATENORM_INLINE Sixteen floats16(const int32_t* from) {
    Sixteen x;
    unroll<PARTS>([&](auto i) __attribute__((always_inline)) {
        x.part[i] = __builtin_convertvector(load<Ints>(from + i * LANES), Floats);
    });
    return x;
}
template <class T> RATENORM_INLINE void clear16(T* at) { std::memset(at, 0, WORD * sizeof(T)); }

} // namespace ratenorm::RATENORM_ISA
