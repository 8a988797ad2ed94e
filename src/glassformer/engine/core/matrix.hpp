// Rows of floats times a quantized matrix: each row is quantized to int8 with a scale of its own, and the products are scaled back.
#pragma once
#include <algorithm>

#include "amx.hpp"
#include "dots.hpp"
#include "floats.hpp"
#include "model.hpp"

namespace glass {

constexpr int FEW = 16;  // rows that take little longer than reading the weights

inline int padded(int size) { return (size + LANES - 1) / LANES * LANES; }

// One row, whose largest magnitude becomes 127; returns its scale.
inline float quantize(const float* from, int columns, std::int8_t* to) {
    Floats most = zero();
    for (int i = 0; i < columns; i += LANES) {
        const Floats value = load(from + i);
        most = max(most, max(value, -value));
    }
    const float top = horizontal_max(most);
    const Floats by = splat(top > 0x1p-120f ? 127.0f / top : 0.0f);  // below that, the quotient would be infinite
    for (int i = 0; i < columns; i += LANES) store(to + i, to_int(round_nearest(load(from + i) * by)));
    return top / 127.0f;
}

// Bring a row of floats into the form that the products with a matrix need.
inline void put_row(Rows& x, int row, const float* from, const GlassMatrix& matrix) {
    x.scales[static_cast<Size>(row)] = quantize(from, matrix.columns, x.row(row, matrix.columns));
    if (matrix.multipliers)
        prepare4(x, row, matrix.columns);
    else
        prepare8(x, row, matrix.columns);
}

// One weight, before its row's scale.
inline int weight_at(const GlassMatrix& matrix, Size row, int column) {
    const Panels panel(matrix, static_cast<int>(row / LANES));
    const Size lane = row % LANES;
    const Size four = lane * FOUR + static_cast<Size>(column % FOUR);
    if (!matrix.multipliers) return panel.weights[offset(column / FOUR, FOUR * LANES) + four];
    const int both = static_cast<std::uint8_t>(panel.weights[offset(column / EIGHT, FOUR * LANES) + four]);
    const int half = column / FOUR % 2 ? both >> 4 : both & 15;
    return (half - 8) * panel.multipliers[offset(column / GROUP, LANES) + lane];
}

// The sums of some rows and a panel, scaled; put(row, panel, sixteen numbers) receives them.
template <typename Put>
GLASS_INLINE void put_sums(const GlassMatrix& matrix, const Rows& x, int panel, int row, int count, const Ints* sums, const Put& put) {
    const Floats scales = load(matrix.scales + panel * LANES);
    const Floats bias = matrix.bias ? load(matrix.bias + panel * LANES) : zero();
    for (int t = 0; t < count; t++)
        put(row + t, panel, to_float(sums[t]) * (splat(x.scales[static_cast<Size>(row + t)]) * scales) + bias);
}

// P panels by T rows.
template <int BITS, int P, int T, typename Put>
inline void tile(const GlassMatrix& matrix, const Rows& x, int panel, int row, const Put& put) {
    const Panels some(matrix, panel, P);
    Ints found[P][T];
    if constexpr (BITS == 4)
        dots4<P, T>(some, x, row, found);
    else
        dots8<P, T>(some, x, row, found);
    for (int p = 0; p < P; p++) put_sums(matrix, x, panel + p, row, T, found[p], put);
}

// As many rows as are left, up to a whole tile.
template <int BITS, int P, int T, typename Put>
inline void tiles(const GlassMatrix& matrix, const Rows& x, int panel, int row, int left, const Put& put) {
    if constexpr (T > 1) {
        if (left < T) return tiles<BITS, P, T - 1>(matrix, x, panel, row, left, put);
    }
    tile<BITS, P, T>(matrix, x, panel, row, put);
}

// P panels at a time by all rows; returns the first panel that is left over.
template <int BITS, int P, typename Put>
inline int panels(const GlassMatrix& matrix, const Rows& x, int count, int panel, int end, const Put& put) {
    // A few rows are one tile: while it is computed the next panel is fetched, and a second tile would find nothing left to fetch.
    const int most = count <= Tile<BITS>::ROWS ? Tile<BITS>::ROWS : Tile<BITS>::ROWS_OF_MANY;
    const int times = (count + most - 1) / most;
    for (; panel + P <= end; panel += P)
        for (int n = 0; n < times; n++) {  // tiles of nearly the same size: a last one of 1 row would cost as much as one of several
            const int row = count * n / times;
            tiles<BITS, P, Tile<BITS>::ROWS>(matrix, x, panel, row, count * (n + 1) / times - row, put);
        }
    return panel;
}

// A matrix by all rows; the threads of a team take panels.
template <int BITS, typename Put>
void multiply_tiles(const GlassMatrix& matrix, const Rows& x, int count, Team& team, const Put& put) {
    constexpr int UNIT = Tile<BITS>::PANELS_ONE_ROW;
    const auto work = [&](int panel, int end) {
#if defined(GLASS_AMX)
        if (fits_tiles<BITS>(matrix, count))
            return by_tiles<BITS>(matrix, x, count, panel, end, [&](int at, int row, int rows, const Ints* sums) __attribute__((always_inline)) {
                put_sums(matrix, x, at, row, rows, sums, put);
            });
#endif
        if (count == 1)
            for (; panel + UNIT <= end; panel += UNIT) tile<BITS, UNIT, 1>(matrix, x, panel, 0, put);
        panel = panels<BITS, Tile<BITS>::PANELS>(matrix, x, count, panel, end, put);
        if constexpr (Tile<BITS>::PANELS > 1) panels<BITS, 1>(matrix, x, count, panel, end, put);
    };
    team.parallel_for(matrix.panels, UNIT, work, count > FEW ? 4 : 1);
}

template <typename Put>
void multiply(const GlassMatrix& matrix, const Rows& x, int count, Team& team, const Put& put) {
    if (matrix.multipliers)
        multiply_tiles<4>(matrix, x, count, team, put);
    else
        multiply_tiles<8>(matrix, x, count, team, put);
}

}  // namespace glass
