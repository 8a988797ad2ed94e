// The products in plain C++, for any machine.
#pragma once
#include "dots.hpp"

namespace glass {

constexpr const char* WAY = "plain";

template <int BITS>
struct Tile {
    static constexpr int PANELS = 1, ROWS = 1, ROWS_OF_MANY = 1, PANELS_ONE_ROW = 1;
};

inline void prepare8(Rows&, int, int) {}
inline void prepare4(Rows&, int, int) {}

template <int P, int T>
void dots8(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    static_assert(P == 1 && T == 1);
    const std::int8_t *w = panels.weights, *numbers = x.row(row, panels.columns);
    std::int32_t sums[LANES] = {};
    for (int k = 0; k < panels.columns; k += FOUR, w += FOUR * LANES)
        for (int lane = 0; lane < LANES; lane++)
            for (int i = 0; i < FOUR; i++) sums[lane] += w[lane * FOUR + i] * numbers[k + i];
    for (int lane = 0; lane < LANES; lane++) out[0][0].part[lane / WIDE][lane % WIDE] = sums[lane];
}

template <int P, int T>
void dots4(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    static_assert(P == 1 && T == 1);
    const std::int8_t *w = panels.weights, *multipliers = panels.multipliers;
    const std::int8_t* numbers = x.row(row, panels.columns);
    std::int32_t sums[LANES] = {};
    for (int k = 0; k < panels.columns; multipliers += LANES) {
        std::int32_t part[LANES] = {};
        for (const int end = std::min(panels.columns, k + GROUP); k < end; k += EIGHT, w += FOUR * LANES)
            for (int lane = 0; lane < LANES; lane++)
                for (int i = 0; i < FOUR; i++) {
                    const int both = static_cast<std::uint8_t>(w[lane * FOUR + i]);
                    part[lane] += ((both & 15) - 8) * numbers[k + i] + ((both >> 4) - 8) * numbers[k + FOUR + i];
                }
        for (int lane = 0; lane < LANES; lane++) sums[lane] += part[lane] * multipliers[lane];
    }
    for (int lane = 0; lane < LANES; lane++) out[0][0].part[lane / WIDE][lane % WIDE] = sums[lane];
}

}  // namespace glass
