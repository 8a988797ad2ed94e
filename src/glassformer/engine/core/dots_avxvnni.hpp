// The products of AVX-VNNI, which came to processors without AVX-512: those of eight bits are in dots_vnni.hpp.
#pragma once
#include "dots4_avx2.hpp"

namespace glass {

constexpr const char* WAY = "avxvnni";

template <>
struct Tile<8> {
    static constexpr int PANELS = 1, ROWS = 6;  // 12 sums, two weights, and what is broadcast
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 4;
};

using Register = __m256i;

inline Register broadcast_register(std::int32_t value) { return _mm256_set1_epi32(value); }
inline Register load_shifted(const std::int8_t* weights) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)), _mm256_set1_epi8(-128));
}

// In assembly, because GCC copies the sum to another register before the intrinsic and back after it.
GLASS_INLINE Register add_products(Register sum, Register weights, Register numbers) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(weights), "x"(numbers));
    return sum;
}

inline __m128i add_products(__m128i sum, __m128i weights, __m128i numbers) { return _mm_dpbusd_avx_epi32(sum, weights, numbers); }

}  // namespace glass

#include "dots_vnni.hpp"
