// The products of AVX2: `vpmaddubsw` multiplies unsigned by signed bytes and adds two products in 16 bits. Here those of eight bits.
#pragma once
#include "dots4_avx2.hpp"

namespace glass {

constexpr const char* WAY = "avx2";

template <>
struct Tile<8> {
    static constexpr int PANELS = 1, ROWS = 8;
    static constexpr int ROWS_OF_MANY = 6;  // leave registers for what is multiplied
    static constexpr int PANELS_ONE_ROW = 4;
};

// Eight bits. Two products in 16 bits can saturate, so 128 is added to the weights and 128 × the sum of the activations is subtracted;
// and two neighboring activations may add up to ±128 at most: 255 × 128 fits in 16 bits. Few pairs of a row whose largest is 127
// exceed that: their excess is split off and multiplied on its own.
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

inline void prepare8(Rows& x, int row, int columns) {
    std::int8_t* numbers = x.row(row, columns);
    std::vector<Excess>& excess = x.excess[static_cast<Size>(row)];
    excess.clear();
    __m128i sum = _mm_setzero_si128();
    for (int k = 0; k < columns; k += LANES) {
        const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers + k)));
        sum = _mm_add_epi32(sum, _mm_madd_epi16(pairs, _mm_set1_epi16(1)));
        const int large = _mm_movemask_epi8(_mm_cmpgt_epi16(_mm_abs_epi16(pairs), _mm_set1_epi16(MOST)));  // four bits for each four numbers
        for (int i = 0; large >> i; i += FOUR)
            if (large >> i & 15) excess.push_back(split_excess(numbers, k + i));
    }
    std::int32_t parts[4];
    std::memcpy(parts, &sum, sizeof parts);
    x.sums[static_cast<Size>(row)] = parts[0] + parts[1] + parts[2] + parts[3];
}

inline __m256i shifted(const std::int8_t* weights) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)), _mm256_set1_epi8(-128));
}

inline __m256i products(__m256i weights, const std::int8_t* x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, _mm256_set1_epi32(four_at(x))), _mm256_set1_epi16(1));
}

// Several rows read a panel twice, half by half, and only the first time from memory; so each time half of the next panel is fetched.
template <int T>
GLASS_INLINE void prefetch8(const Panels& panels, int p, int half, Size place) {
    if constexpr (T == 1)
        prefetch_ahead(panels, p, place);
    else
        prefetch_next(panels, p, (static_cast<Size>(half) * panels.step + place) / 2);
}

// H of a panel's two halves at a time: sixteen registers do not hold the sums of more.
template <int P, int T, int H>
inline void half_dots8(const Panels& panels, const Rows& x, int row, int first, Ints (&out)[P][T]) {
    const std::int8_t* w = panels.weights + first * WIDE * FOUR;
    const std::int8_t* numbers = x.row(row, panels.columns);
    const Size step = row_step(panels.columns);
    __m256i sums[P][T][H];
    unrolled<T>([&](auto t) {
        const __m256i start = _mm256_set1_epi32(-128 * x.sums[static_cast<Size>(row + t)]);
        unrolled<P>([&](auto p) { unrolled<H>([&](auto h) { sums[p][t][h] = start; }); });
    });
#pragma GCC unroll 2
    for (int k = 0; k < panels.columns; k += FOUR, w += FOUR * LANES, numbers += FOUR)
        unrolled<P>([&](auto p) {
            const std::int8_t* from = w + p * panels.step;
            prefetch8<T>(panels, p, first, offset(k, LANES));
            unrolled<H>([&](auto h) {
                const __m256i weights = shifted(from + h * WIDE * FOUR);
                unrolled<T>([&](auto t) { sums[p][t][h] = _mm256_add_epi32(sums[p][t][h], products(weights, numbers + t * step)); });
            });
        });
    unrolled<P>([&](auto p) {
        unrolled<T>([&](auto t) {
            unrolled<H>([&](auto h) { out[p][t].part[first + h] = reinterpret_cast<IntPart>(sums[p][t][h]); });
        });
    });
}

template <int P, int T>
inline void add_excess(const Panels& panels, const std::vector<Excess>& excess, int row, Ints (&out)[P][T]) {
    for (int p = 0; p < P; p++) {
        const std::int8_t* w = panels.weights + static_cast<Size>(p) * panels.step;
        __m256i found[PARTS] = {};  // here, because a byte that is read could be a part of `out`, for all that the compiler knows
        for (const Excess& one : excess)
            unrolled<PARTS>([&](auto h) {
                const __m256i more = products(shifted(w + one.column * LANES + h * WIDE * FOUR), one.four);
                found[h] = _mm256_add_epi32(found[h], more);
            });
        unrolled<PARTS>([&](auto h) { out[p][row].part[h] += reinterpret_cast<IntPart>(found[h]); });
    }
}

template <int P, int T>
void dots8(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    if constexpr (T == 1) {
        half_dots8<P, T, 2>(panels, x, row, 0, out);
    } else {
        half_dots8<P, T, 1>(panels, x, row, 0, out);
        half_dots8<P, T, 1>(panels, x, row, 1, out);
    }
    for (int t = 0; t < T; t++) add_excess(panels, x.excess[static_cast<Size>(row + t)], t, out);
}

}  // namespace glass
