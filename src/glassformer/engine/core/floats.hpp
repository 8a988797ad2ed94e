// Float work in sixteen lanes: the same order and the same roundings on every machine that has IEEE floats.
// There is no libm here and nothing is contracted, so a number does not depend on the instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace glass {

constexpr int LANES = 16;

#define GLASS_INLINE inline __attribute__((always_inline))  // a call would take its sixteen lanes through memory

// As many lanes as a register has; sixteen of them in one or several registers. Compilers take wider vectors apart lane by lane.
#if defined(__AVX512F__)
constexpr int WIDE = 16;
#elif defined(__AVX2__)
constexpr int WIDE = 8;
#else
constexpr int WIDE = 4;
#endif
constexpr int PARTS = LANES / WIDE;
using FloatPart = float __attribute__((vector_size(4 * WIDE)));
using IntPart = std::int32_t __attribute__((vector_size(4 * WIDE)));
using BytePart = std::int8_t __attribute__((vector_size(WIDE)));
using FloatsAnywhere = float __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));  // in memory, at any address

struct Ints {
    IntPart part[PARTS];
};

struct Floats {
    FloatPart part[PARTS];
};

#define GLASS_EACH(Type, expression)            \
    Type made;                                  \
    for (int i = 0; i < PARTS; i++) made.part[i] = expression; \
    return made;

// x - 0 is x: compilers see a broadcast here, and many moves in a loop over the lanes.
GLASS_INLINE FloatPart spread(float value) { return value - FloatPart{}; }
GLASS_INLINE IntPart spread(std::int32_t value) { return value - IntPart{}; }

GLASS_INLINE Floats all(float value) { GLASS_EACH(Floats, spread(value)) }
GLASS_INLINE Ints all(std::int32_t value) { GLASS_EACH(Ints, spread(value)) }
GLASS_INLINE Floats none() { return all(0.0f); }
GLASS_INLINE Floats operator+(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] + b.part[i]) }
GLASS_INLINE Floats operator-(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] - b.part[i]) }
GLASS_INLINE Floats operator*(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] * b.part[i]) }
GLASS_INLINE Floats operator/(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] / b.part[i]) }
GLASS_INLINE Floats operator-(Floats a) { GLASS_EACH(Floats, -a.part[i]) }
GLASS_INLINE Floats& operator+=(Floats& a, Floats b) { return a = a + b; }
GLASS_INLINE Ints operator<(Floats a, Floats b) { GLASS_EACH(Ints, a.part[i] < b.part[i]) }
GLASS_INLINE Ints operator>(Floats a, Floats b) { GLASS_EACH(Ints, a.part[i] > b.part[i]) }
GLASS_INLINE Ints operator<(Ints a, Ints b) { GLASS_EACH(Ints, a.part[i] < b.part[i]) }
GLASS_INLINE Ints operator+(Ints a, Ints b) { GLASS_EACH(Ints, a.part[i] + b.part[i]) }
GLASS_INLINE Ints operator<<(Ints a, int by) { GLASS_EACH(Ints, a.part[i] << by) }
GLASS_INLINE Ints whole(Floats a) { GLASS_EACH(Ints, __builtin_convertvector(a.part[i], IntPart)) }
GLASS_INLINE Floats floats(Ints a) { GLASS_EACH(Floats, __builtin_convertvector(a.part[i], FloatPart)) }
GLASS_INLINE Floats bits(Ints a) { GLASS_EACH(Floats, (FloatPart)a.part[i]) }

GLASS_INLINE Floats larger(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] > b.part[i] ? a.part[i] : b.part[i]) }
GLASS_INLINE Floats smaller(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] < b.part[i] ? a.part[i] : b.part[i]) }

// By bits, not by lanes: a mask is all ones or all zeros.
GLASS_INLINE Floats pick(Ints mask, Floats yes, Floats no) {
    GLASS_EACH(Floats, (FloatPart)((mask.part[i] & (IntPart)yes.part[i]) | (~mask.part[i] & (IntPart)no.part[i])))
}

GLASS_INLINE Floats load(const float* from) { GLASS_EACH(Floats, *reinterpret_cast<const FloatsAnywhere*>(from + i * WIDE)) }

#undef GLASS_EACH

GLASS_INLINE void store(float* to, Floats value) {
    for (int i = 0; i < PARTS; i++) *reinterpret_cast<FloatsAnywhere*>(to + i * WIDE) = value.part[i];
}

GLASS_INLINE void store(std::int8_t* to, Ints value) {  // the lowest eight bits of each
    for (int i = 0; i < PARTS; i++) {
        const BytePart bytes = __builtin_convertvector(value.part[i], BytePart);
        std::memcpy(to + i * WIDE, &bytes, sizeof bytes);
    }
}

// Keys and values are kept in half the bits: eleven of them are the number's own.
using Half = std::uint16_t;
constexpr float HALF_MOST = 65504.0f;

#if defined(__AVX512F__)
GLASS_INLINE FloatPart part(const Half* from) {
    return reinterpret_cast<FloatPart>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

GLASS_INLINE void store_part(Half* to, FloatPart value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__AVX2__)
GLASS_INLINE FloatPart part(const Half* from) {
    return reinterpret_cast<FloatPart>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

GLASS_INLINE void store_part(Half* to, FloatPart value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
}
#else
GLASS_INLINE FloatPart part(const Half* from) {
    FloatPart value;
    for (int lane = 0; lane < WIDE; lane++) {
        const std::uint32_t half = from[lane], moved = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
        float size;
        std::memcpy(&size, &moved, sizeof size);
        value[lane] = (sign ? -1.0f : 1.0f) * (size * 0x1p112f);  // exact, below the smallest normal number too
    }
    return value;
}

GLASS_INLINE void store_part(Half* to, FloatPart value) {
    for (int lane = 0; lane < WIDE; lane++) {
        const float one = value[lane], size = one < 0.0f ? -one : one;
        std::uint32_t all_bits, kept;
        std::memcpy(&all_bits, &one, sizeof all_bits);
        if (size < 0x1p-14f) {  // steps of 2^-24: an addition rounds to them
            const float raised = size + 0.5f;
            std::memcpy(&kept, &raised, sizeof kept);
            kept -= 0x3f000000u;
        } else {
            std::memcpy(&kept, &size, sizeof kept);
            kept = (kept + 0xfffu + ((kept >> 13) & 1u) - (112u << 23)) >> 13;
        }
        to[lane] = static_cast<Half>(kept | ((all_bits >> 16) & 0x8000u));
    }
}
#endif

GLASS_INLINE Ints lanes() {
    Ints value;
    for (int lane = 0; lane < LANES; lane++) value.part[lane / WIDE][lane % WIDE] = lane;
    return value;
}

GLASS_INLINE Floats load(const Half* from) {
    Floats value;
    for (int i = 0; i < PARTS; i++) value.part[i] = part(from + i * WIDE);
    return value;
}

GLASS_INLINE void store(Half* to, Floats value) {
    value = smaller(larger(value, all(-HALF_MOST)), all(HALF_MOST));
    for (int i = 0; i < PARTS; i++) store_part(to + i * WIDE, value.part[i]);
}

// Halves are folded together until one is left: always the same tree.
GLASS_INLINE float sum(Floats value) {
    float part[LANES];
    store(part, value);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

GLASS_INLINE float highest(Floats value) {
    float part[LANES];
    store(part, value);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
    return part[0];
}

GLASS_INLINE Floats rounded(Floats value) {  // to the nearest whole number, ties to even; for sizes below 2^22
    const Floats magic = all(12582912.0f);
    return (value + magic) - magic;
}

// e^x, to about two units in the last place; 0 below -87.
GLASS_INLINE Floats exponential(Floats x) {
    const Floats low = all(-87.0f);
    const Ints gone = x < low;
    x = smaller(larger(x, low), all(88.0f));
    const Floats n = rounded(x * all(1.44269504f));
    const Floats r = (x - n * all(0.693359375f)) - n * all(-2.12194440e-4f);
    Floats y = all(1.9875691500e-4f);
    y = y * r + all(1.3981999507e-3f);
    y = y * r + all(8.3334519073e-3f);
    y = y * r + all(4.1665795894e-2f);
    y = y * r + all(1.6666665459e-1f);
    y = y * r + all(5.0000001201e-1f);
    y = (y * (r * r) + r) + all(1.0f);
    return pick(gone, none(), y * bits((whole(n) + all(127)) << 23));
}

GLASS_INLINE Floats error_function(Floats x) {  // Abramowitz and Stegun 7.1.26, within 1.5e-7
    const Floats size = pick(x < none(), -x, x);
    const Floats t = all(1.0f) / (all(1.0f) + all(0.3275911f) * size);
    Floats y = all(1.061405429f);
    y = y * t + all(-1.453152027f);
    y = y * t + all(1.421413741f);
    y = y * t + all(-0.284496736f);
    y = y * t + all(0.254829592f);
    y = all(1.0f) - (y * t) * exponential(-(size * size));
    return pick(x < none(), -y, y);
}

enum Activation : std::int32_t { GELU_TANH = 0, GELU_ERF = 1, RELU = 2 };

GLASS_INLINE Floats activate(Floats x, std::int32_t kind) {
    if (kind == RELU) return larger(x, none());
    if (kind == GELU_ERF) return (all(0.5f) * x) * (all(1.0f) + error_function(x * all(0.70710678f)));
    const Floats inner = all(-1.59576912f) * (x + all(0.044715f) * ((x * x) * x));
    return x / (all(1.0f) + exponential(inner));  // (1 + tanh u) / 2 is 1 / (1 + e^(-2u))
}

}  // namespace glass
