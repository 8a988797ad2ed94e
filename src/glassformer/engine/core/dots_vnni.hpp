// Eight bits by `vpdpbusd`, which adds four products of unsigned by signed bytes to each sum in 32 bits, exactly: AVX-512 has it, and
// AVX-VNNI for registers half as wide. The file of each says what a Register is, loads and broadcasts one, and adds products.
#pragma once
#include "dots.hpp"

namespace glass {

inline void prepare8(Rows& x, int row, int columns) {
    const std::int8_t* numbers = x.row(row, columns);
    __m128i sum = _mm_setzero_si128();
    for (int k = 0; k < columns; k += LANES)
        sum = add_products(sum, _mm_set1_epi8(1), _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers + k)));
    std::int32_t parts[4];
    std::memcpy(parts, &sum, sizeof parts);
    x.sums[static_cast<Size>(row)] = parts[0] + parts[1] + parts[2] + parts[3];
}

template <int T>
GLASS_INLINE void prefetch8(const Panels& panels, int p, Size place) {
    if constexpr (T == 1)
        prefetch_ahead(panels, p, place);
    else
        prefetch_next(panels, p, place);
}

// Weights are signed: 128 is added to make them unsigned, and 128 × the sum of the row is subtracted at the start.
template <int P, int T>
void dots8(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    const std::int8_t* w = panels.weights;
    const std::int8_t* numbers = x.row(row, panels.columns);
    const Size step = row_step(panels.columns);
    Register sums[P][T][PARTS];
    unrolled<T>([&](auto t) {
        const Register start = broadcast_register(-128 * x.sums[static_cast<Size>(row + t)]);
        unrolled<P>([&](auto p) { unrolled<PARTS>([&](auto h) { sums[p][t][h] = start; }); });
    });
    for (int k = 0; k < panels.columns; k += FOUR, w += FOUR * LANES, numbers += FOUR) {
        Register weights[P][PARTS];
        unrolled<P>([&](auto p) {
            const std::int8_t* from = w + p * panels.step;
            unrolled<PARTS>([&](auto h) { weights[p][h] = load_shifted(from + h * WIDE * FOUR); });
            prefetch8<T>(panels, p, offset(k, LANES));
        });
        unrolled<T>([&](auto t) {
            const Register four = broadcast_register(four_at(numbers + t * step));
            unrolled<P>([&](auto p) {
                unrolled<PARTS>([&](auto h) { sums[p][t][h] = add_products(sums[p][t][h], weights[p][h], four); });
            });
        });
    }
    unrolled<P>([&](auto p) {
        unrolled<T>([&](auto t) {
            unrolled<PARTS>([&](auto h) { out[p][t].part[h] = reinterpret_cast<IntPart>(sums[p][t][h]); });
        });
    });
}

}  // namespace glass
