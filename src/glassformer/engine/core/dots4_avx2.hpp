// The products of four bits of AVX2, and of AVX-VNNI, which has no better ones for them.
#pragma once
#include "dots.hpp"

namespace glass {

template <>
struct Tile<4> {
    static constexpr int PANELS = 1, ROWS = 4;  // eight sums of a group; those of the whole row are in memory meanwhile
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 1;  // memory is read in its order; a group does not wait for the one before it
};

// Weights are stored plus 8: 0 to 15, so no pair of products saturates. A group is summed in 16 bits, from
// minus 8 × its columns on: every sum on the way fits as the last one does, GROUP / 2 columns of at most 8 × 127 in each half of a lane.
static_assert(GROUP / 2 * 8 * 127 <= 32767);

inline void prepare4(Rows& x, int row, int columns) {
    const std::int8_t* numbers = x.row(row, columns);
    std::int32_t* starts = x.starts.data() + offset(row, groups_of(columns));
    for (int k = 0; k < columns; k += GROUP) {
        std::int16_t halves[2] = {};  // -8 × the sum of the columns that each half of a lane adds up
        for (int i = k; i < std::min(columns, k + GROUP); i++) halves[i / 2 % 2] = static_cast<std::int16_t>(halves[i / 2 % 2] - 8 * numbers[i]);
        std::memcpy(starts++, halves, sizeof halves);
    }
}

// In assembly, because GCC puts off such additions until it has no register left for what it would add.
GLASS_INLINE __m256i add_words(__m256i sum, __m256i words) {
    asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(words));
    return sum;
}

// Both halves of a panel at once, so that a number is broadcast for two registers of weights. A whole group is written out: its few
// instructions would else be a third more for counting and addresses.
template <int P, int T>
void dots4(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    const std::int8_t *w = panels.weights, *multipliers = panels.multipliers;
    const std::int8_t* numbers = x.row(row, panels.columns);
    const int groups = groups_of(panels.columns);
    const std::int32_t* starts = x.starts.data() + offset(row, groups);
    const Size step = row_step(panels.columns);
    const __m256i low = _mm256_set1_epi8(15);
    __m256i sums[P][T][PARTS];
    unrolled<P>([&](auto p) { unrolled<T>([&](auto t) { unrolled<PARTS>([&](auto h) { sums[p][t][h] = _mm256_setzero_si256(); }); }); });
    for (int g = 0, left = panels.columns; g < groups; g++, left -= GROUP, multipliers += LANES) {
        __m256i part[P][T][PARTS];
        unrolled<T>([&](auto t) {
            const __m256i start = _mm256_set1_epi32(starts[t * static_cast<Size>(groups) + static_cast<Size>(g)]);
            unrolled<P>([&](auto p) { unrolled<PARTS>([&](auto h) { part[p][t][h] = start; }); });
        });
        const auto add = [&](const __m256i(&weights)[PARTS], int p, int column) __attribute__((always_inline)) {
            unrolled<T>([&](auto t) {
                const __m256i four = _mm256_set1_epi32(four_at(numbers + t * step + column));
                unrolled<PARTS>([&](auto h) { part[p][t][h] = add_words(part[p][t][h], _mm256_maddubs_epi16(weights[h], four)); });
            });
        };
        const auto eight = [&](int n) __attribute__((always_inline)) {
            unrolled<P>([&](auto p) __attribute__((always_inline)) {
                const std::int8_t* from = w + p * panels.step + n * FOUR * LANES;
                if (row == 0) prefetch_ahead(panels, p, static_cast<Size>(w - panels.weights) + offset(n, FOUR * LANES));
                __m256i both[PARTS], weights[PARTS];
                unrolled<PARTS>([&](auto h) {
                    both[h] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + h * WIDE * FOUR));
                    weights[h] = _mm256_and_si256(both[h], low);
                });
                add(weights, p, n * EIGHT);
                unrolled<PARTS>([&](auto h) { weights[h] = _mm256_and_si256(_mm256_srli_epi16(both[h], 4), low); });
                add(weights, p, n * EIGHT + FOUR);
            });
        };
        if (left >= GROUP)
            unrolled<GROUP / EIGHT>(eight);
        else
            for (int n = 0; n < left / EIGHT; n++) eight(n);
        w += GROUP / EIGHT * FOUR * LANES;
        numbers += GROUP;
        unrolled<P>([&](auto p) {
            unrolled<PARTS>([&](auto h) {
                const __m128i some = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(multipliers + p * panels.multiplier_step + h * WIDE));
                const __m256i by = _mm256_cvtepi8_epi32(some), twice = _mm256_or_si256(by, _mm256_slli_epi32(by, 16));
                unrolled<T>([&](auto t) { sums[p][t][h] = _mm256_add_epi32(sums[p][t][h], _mm256_madd_epi16(part[p][t][h], twice)); });
            });
        });
    }
    unrolled<P>([&](auto p) {
        unrolled<T>([&](auto t) { unrolled<PARTS>([&](auto h) { out[p][t].part[h] = reinterpret_cast<IntPart>(sums[p][t][h]); }); });
    });
}

}  // namespace glass
