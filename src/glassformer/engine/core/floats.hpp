// Floats in sixteen lanes: the same order of operations and the same rounding on every machine that has IEEE floats.
// A multiplication is fused with an addition where `multiply_add` says so, and nowhere else; nothing else calls libm. So a number
// does not depend on the instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(GLASS_PLAIN)  // every such processor has NEON
#define GLASS_NEON
#include <arm_neon.h>
#endif

namespace glass {

constexpr int LANES = 16;

#define GLASS_INLINE inline __attribute__((always_inline))  // a call would pass its sixteen lanes through memory

// The lanes of one register; sixteen take one register or several. Compilers split wider vectors into single lanes.
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
using FloatsAnywhere [[gnu::aligned(4), gnu::may_alias]] = FloatPart;  // in memory, unaligned; clang reads the alignment here alone

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

// Compilers make one broadcast of x - 0, and many moves of a loop over the lanes.
GLASS_INLINE FloatPart broadcast(float value) { return value - FloatPart{}; }
GLASS_INLINE IntPart broadcast(std::int32_t value) { return value - IntPart{}; }

GLASS_INLINE Floats splat(float value) { GLASS_EACH(Floats, broadcast(value)) }
GLASS_INLINE Ints splat(std::int32_t value) { GLASS_EACH(Ints, broadcast(value)) }
GLASS_INLINE Floats zero() { return splat(0.0f); }
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
GLASS_INLINE Ints to_int(Floats a) { GLASS_EACH(Ints, __builtin_convertvector(a.part[i], IntPart)) }
GLASS_INLINE Floats to_float(Ints a) { GLASS_EACH(Floats, __builtin_convertvector(a.part[i], FloatPart)) }
GLASS_INLINE Floats bit_cast(Ints a) { GLASS_EACH(Floats, (FloatPart)a.part[i]) }

// a × b + c, rounded once.
#if defined(__AVX512F__)
GLASS_INLINE FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) {
    return reinterpret_cast<FloatPart>(_mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
}
#elif defined(__AVX2__)
GLASS_INLINE FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) {
    return reinterpret_cast<FloatPart>(_mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
}
#elif defined(GLASS_NEON)
GLASS_INLINE FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) {
    return reinterpret_cast<FloatPart>(
        vfmaq_f32(reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(a), reinterpret_cast<float32x4_t>(b)));
}
#else
GLASS_INLINE FloatPart multiply_add(FloatPart a, FloatPart b, FloatPart c) {
    FloatPart sum;
    for (int lane = 0; lane < WIDE; lane++) sum[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return sum;
}
#endif
GLASS_INLINE Floats multiply_add(Floats a, Floats b, Floats c) { GLASS_EACH(Floats, multiply_add(a.part[i], b.part[i], c.part[i])) }

GLASS_INLINE Floats max(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] > b.part[i] ? a.part[i] : b.part[i]) }
GLASS_INLINE Floats min(Floats a, Floats b) { GLASS_EACH(Floats, a.part[i] < b.part[i] ? a.part[i] : b.part[i]) }

// Bitwise: every lane of a mask is all ones or all zeros.
GLASS_INLINE Floats select(Ints mask, Floats yes, Floats no) {
    GLASS_EACH(Floats, (FloatPart)((mask.part[i] & (IntPart)yes.part[i]) | (~mask.part[i] & (IntPart)no.part[i])))
}

GLASS_INLINE Floats load(const float* from) { GLASS_EACH(Floats, *reinterpret_cast<const FloatsAnywhere*>(from + i * WIDE)) }

#undef GLASS_EACH

GLASS_INLINE void store(float* to, Floats value) {
    for (int i = 0; i < PARTS; i++) *reinterpret_cast<FloatsAnywhere*>(to + i * WIDE) = value.part[i];
}

// Numbers that fit into eight bits.
#if defined(__AVX2__) && !defined(__AVX512F__)
GLASS_INLINE void store(std::int8_t* to, Ints value) {  // GCC would move them one by one
    const __m256i words = _mm256_packs_epi32(reinterpret_cast<__m256i>(value.part[0]), reinterpret_cast<__m256i>(value.part[1]));
    const __m256i in_order = _mm256_permute4x64_epi64(words, 0b11'01'10'00);  // the two halves of a register are packed separately
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(in_order), _mm256_extracti128_si256(in_order, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}
#else
GLASS_INLINE void store(std::int8_t* to, Ints value) {
    for (int i = 0; i < PARTS; i++) {
        const BytePart bytes = __builtin_convertvector(value.part[i], BytePart);
        std::memcpy(to + i * WIDE, &bytes, sizeof bytes);
    }
}
#endif

// Keys and values are stored in half precision, which has eleven significant bits.
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
#elif defined(GLASS_NEON)
GLASS_INLINE FloatPart part(const Half* from) {
    return reinterpret_cast<FloatPart>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))));
}

GLASS_INLINE void store_part(Half* to, FloatPart value) {  // to the nearest, ties to even: the processor's rounding mode
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(reinterpret_cast<float32x4_t>(value))));
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
        if (size < 0x1p-14f) {  // subnormal, in steps of 2^-24: adding 0.5 rounds to them
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

GLASS_INLINE Ints lane_indices() {
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
    value = min(max(value, splat(-HALF_MOST)), splat(HALF_MOST));
    for (int i = 0; i < PARTS; i++) store_part(to + i * WIDE, value.part[i]);
}

// The upper half is added to the lower one until one lane is left: always the same tree.
GLASS_INLINE float horizontal_sum(Floats value) {
    float part[LANES];
    store(part, value);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

GLASS_INLINE float horizontal_max(Floats value) {
    float part[LANES];
    store(part, value);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] = part[i] > part[i + half] ? part[i] : part[i + half];
    return part[0];
}

GLASS_INLINE Floats round_nearest(Floats value) {  // ties to even, below 2^22: adding 1.5 × 2^23 leaves no bits for a fraction
    const Floats magic = splat(12582912.0f);
    return (value + magic) - magic;
}

// e^x by 2^n · e^r with |r| < 0.35 (Cephes), to about two units in the last place; 0 below -87.
GLASS_INLINE Floats exponential(Floats x) {
    const Floats low = splat(-87.0f);
    const Ints gone = x < low;
    x = min(max(x, low), splat(88.0f));
    const Floats n = round_nearest(x * splat(1.44269504f));
    const Floats r = multiply_add(n, splat(2.12194440e-4f), multiply_add(n, splat(-0.693359375f), x));
    Floats y = splat(1.9875691500e-4f);
    y = multiply_add(y, r, splat(1.3981999507e-3f));
    y = multiply_add(y, r, splat(8.3334519073e-3f));
    y = multiply_add(y, r, splat(4.1665795894e-2f));
    y = multiply_add(y, r, splat(1.6666665459e-1f));
    y = multiply_add(y, r, splat(5.0000001201e-1f));
    y = multiply_add(y, r * r, r) + splat(1.0f);
    return select(gone, zero(), y * bit_cast((to_int(n) + splat(127)) << 23));
}

GLASS_INLINE Floats error_function(Floats x) {  // Abramowitz and Stegun 7.1.26, within 1.5e-7
    const Floats size = select(x < zero(), -x, x);
    const Floats t = splat(1.0f) / (splat(1.0f) + splat(0.3275911f) * size);
    Floats y = splat(1.061405429f);
    y = multiply_add(y, t, splat(-1.453152027f));
    y = multiply_add(y, t, splat(1.421413741f));
    y = multiply_add(y, t, splat(-0.284496736f));
    y = multiply_add(y, t, splat(0.254829592f));
    y = splat(1.0f) - (y * t) * exponential(-(size * size));
    return select(x < zero(), -y, y);
}

enum Activation : std::int32_t { GELU_TANH = 0, GELU_ERF = 1, RELU = 2 };

GLASS_INLINE Floats activate(Floats x, std::int32_t kind) {
    if (kind == RELU) return max(x, zero());
    if (kind == GELU_ERF) return (splat(0.5f) * x) * (splat(1.0f) + error_function(x * splat(0.70710678f)));
    const Floats inner = splat(-1.59576912f) * multiply_add(splat(0.044715f), (x * x) * x, x);
    return x / (splat(1.0f) + exponential(inner));  // (1 + tanh u) / 2 is 1 / (1 + e^(-2u))
}

}  // namespace glass
