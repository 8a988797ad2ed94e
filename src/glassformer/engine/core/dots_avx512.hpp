// The products of AVX-512 with VNNI: those of eight bits are in dots_vnni.hpp.
#pragma once
#include "dots.hpp"

namespace glass {

#if defined(GLASS_AMX)
constexpr const char* WAY = "amx";
#else
constexpr const char* WAY = "avx512";
#endif
constexpr __mmask16 ALL = 0xffff;  // for intrinsics whose plain form makes GCC warn of a register that is not set

template <>
struct Tile<8> {
    static constexpr int PANELS = 2, ROWS = 12;  // 24 sums, two weights, and what is broadcast
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 4;
};

template <>
struct Tile<4> {
    static constexpr int PANELS = 1, ROWS = 12;  // 12 sums and 12 sums of a group
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 1;  // memory is read in its order; a group does not wait for the one before it
};

using Register = __m512i;

inline Register broadcast_register(std::int32_t value) { return _mm512_set1_epi32(value); }
inline Register load_shifted(const std::int8_t* weights) { return _mm512_xor_si512(_mm512_loadu_si512(weights), _mm512_set1_epi8(-128)); }

// In assembly, because GCC copies the sum to another register before the intrinsic and back after it.
GLASS_INLINE Register add_products(Register sum, Register weights, Register numbers) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(numbers));
    return sum;
}

inline __m128i add_products(__m128i sum, __m128i weights, __m128i numbers) { return _mm_dpbusd_epi32(sum, weights, numbers); }

}  // namespace glass

#include "dots_vnni.hpp"

namespace glass {

// Weights are stored plus 8, so a group starts from -8 × the sum of its activations.
inline void prepare4(Rows& x, int row, int columns) {
    const std::int8_t* numbers = x.row(row, columns);
    std::int32_t* starts = x.starts.data() + offset(row, groups_of(columns));
    for (int k = 0; k < columns; k += GROUP) {
        int sum = 0;
        for (int i = k; i < std::min(columns, k + GROUP); i++) sum += numbers[i];
        *starts++ = -8 * sum;
    }
}

template <int P, int T>
void dots4(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    const std::int8_t *w = panels.weights, *multipliers = panels.multipliers;
    const std::int8_t* numbers = x.row(row, panels.columns);
    const int groups = groups_of(panels.columns);
    const std::int32_t* starts = x.starts.data() + offset(row, groups);
    const Size step = row_step(panels.columns);
    const __m512i low = _mm512_set1_epi8(15);
    __m512i sums[P][T];
    unrolled<P>([&](auto p) { unrolled<T>([&](auto t) { sums[p][t] = _mm512_setzero_si512(); }); });
    for (int g = 0, k = 0; g < groups; g++, multipliers += LANES) {
        __m512i part[P][T];
        unrolled<T>([&](auto t) {
            const __m512i start = _mm512_set1_epi32(starts[t * static_cast<Size>(groups) + static_cast<Size>(g)]);
            unrolled<P>([&](auto p) { part[p][t] = start; });
        });
        for (const int end = std::min(panels.columns, k + GROUP); k < end; k += EIGHT, w += FOUR * LANES) {
            __m512i first[P], second[P];
            unrolled<P>([&](auto p) {
                const std::int8_t* from = w + p * panels.step;
                const __m512i both = _mm512_loadu_si512(from);
                first[p] = _mm512_and_si512(both, low);
                second[p] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
                if (row == 0) prefetch_ahead(panels, p, static_cast<Size>(w - panels.weights));
            });
            unrolled<T>([&](auto t) {
                const std::int8_t* eight = numbers + t * step + k;
                const __m512i one = _mm512_set1_epi32(four_at(eight)), two = _mm512_set1_epi32(four_at(eight + FOUR));
                unrolled<P>([&](auto p) { part[p][t] = add_products(part[p][t], first[p], one); });
                unrolled<P>([&](auto p) { part[p][t] = add_products(part[p][t], second[p], two); });
            });
        }
        unrolled<P>([&](auto p) {
            const std::int8_t* from = multipliers + p * panels.multiplier_step;
            const __m512i by = _mm512_maskz_cvtepi8_epi32(ALL, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
            unrolled<T>([&](auto t) { sums[p][t] = _mm512_add_epi32(sums[p][t], _mm512_mullo_epi32(part[p][t], by)); });
        });
    }
    unrolled<P>([&](auto p) { unrolled<T>([&](auto t) { out[p][t].part[0] = reinterpret_cast<IntPart>(sums[p][t]); }); });
}

}  // namespace glass
