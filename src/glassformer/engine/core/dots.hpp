// Integer dot products: panels of weights by rows of activations, int8 by int8, summed in int32, exactly.
//
// A panel is sixteen rows of a matrix that lie together, four columns at a time: (columns / 4, 16 rows, 4). Four numbers of an
// activation are broadcast over a register, so that its lanes are the sums of sixteen rows and nothing is added across lanes.
// One of three versions is compiled, for the instruction set that the file is built for; all give the same sums.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "floats.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace glass {

constexpr int FOUR = 4;
constexpr int AHEAD = 2048;  // bytes of weights that are prefetched

// What AVX2 needs to know of a row of activations to make its sums exact; the other versions leave it empty.
struct Excess {  // what was subtracted from four numbers of the row, from a column on
    int column;
    std::int8_t four[FOUR];
};
struct Correction {
    std::int32_t sum = 0;  // of the row
    std::vector<Excess> excess;
};

// Each version has `prepare_row`, which brings a quantized row into the form that it needs, `reserve`, which allocates what that
// takes at most, and `dots`, which multiplies P panels by T rows; `sums` are those of each row of weights.

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

constexpr int PANELS = 2, TOKENS = 12;  // of a tile: its sums stay in registers
constexpr int PANELS_ONE_TOKEN = 4;     // of a tile of one token
constexpr const char* WAY = "avx512";

// The instruction takes one side unsigned: activations are stored plus 128, and 128 × the sum of the weights is subtracted.
constexpr int SHIFT = 128;

inline void reserve(Correction&, int) {}
inline void prepare_row(std::int8_t*, int, Correction&) {}

template <int P, int T>
inline void dots(const std::int8_t* w, std::size_t panel, const std::int32_t* sums, const std::int8_t* x, std::size_t row, int columns,
                 const Correction*, Ints (&out)[P][T]) {
    __m512i total[P][T];
    for (int p = 0; p < P; p++) {
        const __m512i base = _mm512_mullo_epi32(_mm512_loadu_si512(sums + p * LANES), _mm512_set1_epi32(-SHIFT));
        for (auto& one : total[p]) one = base;
    }
    for (int k = 0; k < columns; k += FOUR, w += FOUR * LANES, x += FOUR) {
        __m512i weights[P];
        for (int p = 0; p < P; p++) {
            weights[p] = _mm512_loadu_si512(w + static_cast<std::size_t>(p) * panel);
            __builtin_prefetch(w + static_cast<std::size_t>(p) * panel + AHEAD);
        }
        for (int t = 0; t < T; t++) {
            std::int32_t four;
            std::memcpy(&four, x + static_cast<std::size_t>(t) * row, sizeof four);
            const __m512i broadcast = _mm512_set1_epi32(four);
            for (int p = 0; p < P; p++) total[p][t] = _mm512_dpbusd_epi32(total[p][t], broadcast, weights[p]);
        }
    }
    for (int p = 0; p < P; p++)
        for (int t = 0; t < T; t++) out[p][t].part[0] = reinterpret_cast<IntPart>(total[p][t]);
}

#elif defined(__AVX2__)

constexpr int PANELS = 1, TOKENS = 8;
constexpr int PANELS_ONE_TOKEN = 4;
constexpr const char* WAY = "avx2";
constexpr int SHIFT = 0;

// vpmaddubsw takes one side unsigned, adds two products in 16 bits, and saturates. So 128 is added to the weights, and 128 × the
// sum of the activations is subtracted. And two neighboring activations may add up to ±128 at most: 255 × 128 fits in 16 bits.
// Few pairs of a row whose largest is 127 exceed that: their excess is split off and multiplied on its own.
constexpr int MOST = 128;

inline int excess_of(int sum) { return sum > MOST ? sum - MOST : sum < -MOST ? sum + MOST : 0; }

inline Excess split_excess(std::int8_t* x, int column) {
    Excess excess{column, {}};
    for (int i = 1; i < FOUR; i += 2) {
        excess.four[i] = static_cast<std::int8_t>(excess_of(x[column + i - 1] + x[column + i]));
        x[column + i] = static_cast<std::int8_t>(x[column + i] - excess.four[i]);
    }
    return excess;
}

inline void reserve(Correction& correction, int columns) { correction.excess.reserve(static_cast<std::size_t>(columns / FOUR)); }

inline void prepare_row(std::int8_t* x, int columns, Correction& correction) {
    correction.excess.clear();
    __m128i total = _mm_setzero_si128();
    for (int k = 0; k < columns; k += LANES) {
        const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + k)));
        total = _mm_add_epi32(total, _mm_madd_epi16(pairs, _mm_set1_epi16(1)));
        const int large = _mm_movemask_epi8(_mm_cmpgt_epi16(_mm_abs_epi16(pairs), _mm_set1_epi16(MOST)));  // four bits for each four numbers
        for (int i = 0; large >> i; i += FOUR)
            if (large >> i & 15) correction.excess.push_back(split_excess(x, k + i));
    }
    std::int32_t parts[4];
    std::memcpy(parts, &total, sizeof parts);
    correction.sum = parts[0] + parts[1] + parts[2] + parts[3];
}

inline __m256i shifted(const std::int8_t* weights) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)), _mm256_set1_epi8(-128));
}

inline __m256i products(__m256i weights, const std::int8_t* x) {
    std::int32_t four;
    std::memcpy(&four, x, sizeof four);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, _mm256_set1_epi32(four)), _mm256_set1_epi16(1));
}

// H of a panel's two halves at a time: sixteen registers do not hold the sums of more.
template <int P, int T, int H>
inline void half_dots(const std::int8_t* w, std::size_t panel, const std::int8_t* x, std::size_t row, int columns, const Correction* corrections,
                      int first, Ints (&out)[P][T]) {
    __m256i total[P][T][H];
    for (int t = 0; t < T; t++)
        for (int p = 0; p < P; p++)
            for (int h = 0; h < H; h++) total[p][t][h] = _mm256_set1_epi32(-128 * corrections[t].sum);
    w += first * WIDE * FOUR;
#pragma GCC unroll 2
    for (int k = 0; k < columns; k += FOUR, w += FOUR * LANES, x += FOUR)
        for (int p = 0; p < P; p++) {
            const std::int8_t* from = w + static_cast<std::size_t>(p) * panel;
            if (first == 0) __builtin_prefetch(from + AHEAD);
            for (int h = 0; h < H; h++) {
                const __m256i weights = shifted(from + h * WIDE * FOUR);
                for (int t = 0; t < T; t++)
                    total[p][t][h] = _mm256_add_epi32(total[p][t][h], products(weights, x + static_cast<std::size_t>(t) * row));
            }
        }
    for (int p = 0; p < P; p++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) out[p][t].part[first + h] = reinterpret_cast<IntPart>(total[p][t][h]);
}

template <int P, int T>
inline void dots(const std::int8_t* w, std::size_t panel, const std::int32_t*, const std::int8_t* x, std::size_t row, int columns,
                 const Correction* corrections, Ints (&out)[P][T]) {
    if constexpr (T == 1) {
        half_dots<P, T, 2>(w, panel, x, row, columns, corrections, 0, out);
    } else {
        half_dots<P, T, 1>(w, panel, x, row, columns, corrections, 0, out);
        half_dots<P, T, 1>(w, panel, x, row, columns, corrections, 1, out);
    }
    for (int t = 0; t < T; t++)
        for (const Excess& one : corrections[t].excess)
            for (int p = 0; p < P; p++)
                for (int h = 0; h < PARTS; h++) {
                    const std::int8_t* from = w + static_cast<std::size_t>(p) * panel + one.column * LANES + h * WIDE * FOUR;
                    out[p][t].part[h] += reinterpret_cast<IntPart>(products(shifted(from), one.four));
                }
}

#else

constexpr int PANELS = 1, TOKENS = 1;
constexpr int PANELS_ONE_TOKEN = 1;
constexpr const char* WAY = "plain";
constexpr int SHIFT = 0;

inline void reserve(Correction&, int) {}
inline void prepare_row(std::int8_t*, int, Correction&) {}

template <int P, int T>
inline void dots(const std::int8_t* w, std::size_t panel, const std::int32_t*, const std::int8_t* x, std::size_t row, int columns,
                 const Correction*, Ints (&out)[P][T]) {
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
