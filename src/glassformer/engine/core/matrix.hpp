// Rows of floats through an int8 matrix: each row is brought to whole numbers with a scale of its own, and back.
#pragma once
#include <algorithm>
#include <vector>

#include "dots.hpp"
#include "floats.hpp"
#include "model.hpp"

namespace glass {

using Size = std::size_t;

inline int padded(int size) { return (size + LANES - 1) / LANES * LANES; }

inline Size at(int row, int step) { return static_cast<Size>(row) * static_cast<Size>(step); }

// One row, whose largest number becomes 127; returns its scale.
inline float quantize(const float* from, int columns, std::int8_t* to) {
    Floats most = none();
    for (int i = 0; i < columns; i += LANES) {
        const Floats value = load(from + i);
        most = larger(most, larger(value, -value));
    }
    const float top = highest(most);
    const Floats by = all(top > 0.0f ? 127.0f / top : 0.0f);
    for (int i = 0; i < columns; i += LANES) {
        store(to + i, whole(rounded(load(from + i) * by)) + all(SHIFT));
    }
    return top / 127.0f;
}

struct Rows {  // of int8, with their scales and what a way needs beside them
    std::vector<std::int8_t> numbers;
    std::vector<float> scales;
    std::vector<Beside> beside;
    Rows(int count, int most) : numbers(at(count, padded(most))), scales(static_cast<Size>(count)), beside(static_cast<Size>(count)) {}
    void put(int row, const float* from, int columns) {
        std::int8_t* to = numbers.data() + at(row, columns);
        scales[static_cast<Size>(row)] = quantize(from, columns, to);
        settle(to, columns, beside[static_cast<Size>(row)]);
    }
};

// P panels by T rows; put(row, panel, sixteen numbers) takes what comes out.
template <int P, int T, typename Put>
inline void tile(const GlassMatrix& matrix, const Rows& x, int panel, int row, const Put& put) {
    Ints found[P][T];
    const Size step = at(LANES, matrix.columns);
    dots<P, T>(matrix.weights + static_cast<Size>(panel) * step, step, matrix.sums + panel * LANES, x.numbers.data() + at(row, matrix.columns),
               static_cast<Size>(matrix.columns), matrix.columns, x.beside.data() + row, found);
    for (int p = 0; p < P; p++) {
        const Floats scales = load(matrix.scales + (panel + p) * LANES);
        const Floats bias = matrix.bias ? load(matrix.bias + (panel + p) * LANES) : none();
        for (int t = 0; t < T; t++)
            put(row + t, panel + p, floats(found[p][t]) * (all(x.scales[static_cast<Size>(row + t)]) * scales) + bias);
    }
}

// As many rows as are left, up to a whole tile.
template <int P, int T, typename Put>
inline void tiles(const GlassMatrix& matrix, const Rows& x, int panel, int row, int left, const Put& put) {
    if constexpr (T > 1) {
        if (left < T) return tiles<P, T - 1>(matrix, x, panel, row, left, put);
    }
    tile<P, T>(matrix, x, panel, row, put);
}

// P panels at a time by all rows, as far as they go; returns the first that is left.
template <int P, typename Put>
inline int panels(const GlassMatrix& matrix, const Rows& x, int count, int panel, int end, const Put& put) {
    const int times = (count + TOKENS - 1) / TOKENS;
    for (; panel + P <= end; panel += P)
        for (int n = 0; n < times; n++) {  // tiles of nearly the same size
            const int row = count * n / times;
            tiles<P, TOKENS>(matrix, x, panel, row, count * (n + 1) / times - row, put);
        }
    return panel;
}

// The panels of a matrix by all rows, shared by a team.
template <typename Put>
void multiply(const GlassMatrix& matrix, const Rows& x, int count, Team& team, const Put& put) {
    team.share(matrix.panels, PANELS_ALONE, [&](int panel, int end) {
        if (count == 1)
            for (; panel + PANELS_ALONE <= end; panel += PANELS_ALONE) tile<PANELS_ALONE, 1>(matrix, x, panel, 0, put);
        panel = panels<PANELS>(matrix, x, count, panel, end, put);
        panels<1>(matrix, x, count, panel, end, put);
    });
}

}  // namespace glass
