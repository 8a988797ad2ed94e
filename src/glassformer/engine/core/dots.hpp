// Products of whole numbers: panels of weights by rows of activations, int8 by int8, summed in int32, exactly.
//
// A panel is sixteen rows of a matrix that lie together, four columns at a time: (columns / 4, 16 rows, 4). Four numbers of an
// activation are spread over a register, so that its lanes are the sums of sixteen rows and nothing is added across lanes.
// One of three ways is compiled, by the instruction set that the file is built for; all give the same sums.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "floats.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace glass {

constexpr int FOUR = 4;

// `dots` takes P panels by T rows of activations. Of each row of weights it is given two sums, of which a way may need one: of all
// its weights, and of the sizes of the negative ones.
constexpr int AHEAD = 2048;  // bytes of weights that are asked for before they are needed

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

constexpr int PANELS = 2, TOKENS = 12;  // of a tile: its sums stay in registers
constexpr int PANELS_ALONE = 4;         // of a tile of one token
constexpr const char* WAY = "avx512";

// The instruction wants one side unsigned: activations are kept shifted up by 128, and 128 × the sum of the weights is taken off.
constexpr int SHIFT = 128;

template <int P, int T>
inline void dots(const std::int8_t* w, std::size_t panel, const std::int8_t* x, std::size_t row, int columns,
                 const std::int32_t* sums, const std::int32_t*, Ints (&out)[P][T]) {
    __m512i total[P][T];
    for (int p = 0; p < P; p++) {
        const __m512i base = _mm512_mullo_epi32(_mm512_loadu_si512(sums + p * LANES), _mm512_set1_epi32(-SHIFT));
        for (auto& one : total[p]) one = base;
    }
    for (int k = 0; k < columns; k += FOUR, w += FOUR * LANES, x += FOUR) {
        __m512i weights[P];
        for (int p = 0; p < P; p++) {
            weights[p] = _mm512_loadu_si512(w + static_cast<std::size_t>(p) * panel);
            if (T == 1) __builtin_prefetch(w + static_cast<std::size_t>(p) * panel + AHEAD);
        }
        for (int t = 0; t < T; t++) {
            std::int32_t four;
            std::memcpy(&four, x + static_cast<std::size_t>(t) * row, sizeof four);
            const __m512i spread = _mm512_set1_epi32(four);
            for (int p = 0; p < P; p++) total[p][t] = _mm512_dpbusd_epi32(total[p][t], spread, weights[p]);
        }
    }
    for (int p = 0; p < P; p++)
        for (int t = 0; t < T; t++) out[p][t].part[0] = reinterpret_cast<IntPart>(total[p][t]);
}

#elif defined(__AVX2__)

constexpr int PANELS = 1, TOKENS = 6;
constexpr int PANELS_ALONE = 4;
constexpr const char* WAY = "avx2";
constexpr int SHIFT = 0;

// vpmaddubsw takes one side unsigned and one signed, adds two products in 16 bits, and saturates. So |w| stands on the unsigned
// side, and the sign of w moves to x: ~x = -x - 1 where w is negative, which leaves |w| too little, made good by `negatives`. A
// pair of products is at most 2 × 127 × 128 = 32,512: nothing saturates.
inline __m256i add_products(__m256i total, __m256i sizes, __m256i negative, const std::int8_t* x) {
    std::int32_t four;
    std::memcpy(&four, x, sizeof four);
    const __m256i pairs = _mm256_maddubs_epi16(sizes, _mm256_xor_si256(_mm256_set1_epi32(four), negative));
    return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// H of a panel's two halves at a time: there are sixteen registers.
template <int P, int T, int H>
inline void half_dots(const std::int8_t* w, std::size_t panel, const std::int8_t* x, std::size_t row, int columns,
                      const std::int32_t* negatives, int first, Ints (&out)[P][T]) {
    __m256i total[P][T][H];
    for (int p = 0; p < P; p++)
        for (int h = 0; h < H; h++) {
            const __m256i base = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(negatives + p * LANES) + first + h);
            for (int t = 0; t < T; t++) total[p][t][h] = base;
        }
#pragma GCC unroll 2
    for (int k = 0; k < columns; k += FOUR, w += FOUR * LANES, x += FOUR)
        for (int p = 0; p < P; p++) {
            const std::int8_t* from = w + static_cast<std::size_t>(p) * panel;
            if (T == 1) __builtin_prefetch(from + AHEAD);
            for (int h = 0; h < H; h++) {
                const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + first + h);
                const __m256i sizes = _mm256_abs_epi8(weights), negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), weights);
                for (int t = 0; t < T; t++)
                    total[p][t][h] = add_products(total[p][t][h], sizes, negative, x + static_cast<std::size_t>(t) * row);
            }
        }
    for (int p = 0; p < P; p++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) out[p][t].part[first + h] = reinterpret_cast<IntPart>(total[p][t][h]);
}

template <int P, int T>
inline void dots(const std::int8_t* w, std::size_t panel, const std::int8_t* x, std::size_t row, int columns, const std::int32_t*,
                 const std::int32_t* negatives, Ints (&out)[P][T]) {
    if constexpr (T == 1) {
        half_dots<P, T, 2>(w, panel, x, row, columns, negatives, 0, out);
    } else {
        half_dots<P, T, 1>(w, panel, x, row, columns, negatives, 0, out);
        half_dots<P, T, 1>(w, panel, x, row, columns, negatives, 1, out);
    }
}

#else

constexpr int PANELS = 1, TOKENS = 1;
constexpr int PANELS_ALONE = 1;
constexpr const char* WAY = "plain";
constexpr int SHIFT = 0;

template <int P, int T>
inline void dots(const std::int8_t* w, std::size_t panel, const std::int8_t* x, std::size_t row, int columns, const std::int32_t*,
                 const std::int32_t*, Ints (&out)[P][T]) {
    for (int p = 0; p < P; p++)
        for (int t = 0; t < T; t++) {
            std::int32_t total[LANES] = {};
            const std::int8_t* weights = w + static_cast<std::size_t>(p) * panel;
            const std::int8_t* numbers = x + static_cast<std::size_t>(t) * row;
            for (int k = 0; k < columns; k += FOUR, weights += FOUR * LANES, numbers += FOUR)
                for (int lane = 0; lane < LANES; lane++)
                    for (int i = 0; i < FOUR; i++)
                        total[lane] += static_cast<std::int32_t>(weights[lane * FOUR + i]) * static_cast<std::int32_t>(numbers[i]);
            for (int lane = 0; lane < LANES; lane++) out[p][t].part[lane / WIDE][lane % WIDE] = total[lane];
        }
}

#endif

}  // namespace glass
