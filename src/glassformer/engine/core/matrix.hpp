// Rows of floats times an int8 matrix: each row is quantized to int8 with a scale of its own, and the products are scaled back.
#pragma once
#include <algorithm>
#include <vector>

#include "dots.hpp"
#include "floats.hpp"
#include "model.hpp"

namespace glass {

using Size = std::size_t;

inline int padded(int size) { return (size + LANES - 1) / LANES * LANES; }

inline Size offset(int row, int step) { return static_cast<Size>(row) * static_cast<Size>(step); }

// One row, whose largest magnitude becomes 127; returns its scale.
inline float quantize(const float* from, int columns, std::int8_t* to) {
    Floats most = zero();
    for (int i = 0; i < columns; i += LANES) {
        const Floats value = load(from + i);
        most = max(most, max(value, -value));
    }
    const float top = horizontal_max(most);
    const Floats by = splat(top > 0.0f ? 127.0f / top : 0.0f);
    for (int i = 0; i < columns; i += LANES) {
        store(to + i, to_int(round_nearest(load(from + i) * by)) + splat(SHIFT));
    }
    return top / 127.0f;
}

struct Rows {  // quantized to int8, with their scales and the corrections that an instruction set needs
    std::vector<std::int8_t> numbers;
    std::vector<float> scales;
    std::vector<Correction> corrections;
    Rows(int count, int most) : numbers(offset(count, padded(most))), scales(static_cast<Size>(count)), corrections(static_cast<Size>(count)) {
        for (Correction& one : corrections) reserve(one, padded(most));  // here, because threads must not allocate
    }
    void put(int row, const float* from, int columns) {
        std::int8_t* to = numbers.data() + offset(row, columns);
        scales[static_cast<Size>(row)] = quantize(from, columns, to);
        prepare_row(to, columns, corrections[static_cast<Size>(row)]);
    }
};

// P panels by T rows; put(row, panel, sixteen numbers) receives the products.
template <int P, int T, typename Put>
inline void tile(const GlassMatrix& matrix, const Rows& x, int panel, int row, const Put& put) {
    Ints found[P][T];
    const Size step = offset(LANES, matrix.columns);
    dots<P, T>(matrix.weights + static_cast<Size>(panel) * step, step, matrix.sums + panel * LANES,
               x.numbers.data() + offset(row, matrix.columns), static_cast<Size>(matrix.columns), matrix.columns,
               x.corrections.data() + row, found);
    for (int p = 0; p < P; p++) {
        const Floats scales = load(matrix.scales + (panel + p) * LANES);
        const Floats bias = matrix.bias ? load(matrix.bias + (panel + p) * LANES) : zero();
        for (int t = 0; t < T; t++)
            put(row + t, panel + p, to_float(found[p][t]) * (splat(x.scales[static_cast<Size>(row + t)]) * scales) + bias);
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

// P panels at a time by all rows; returns the first panel that is left over.
template <int P, typename Put>
inline int panels(const GlassMatrix& matrix, const Rows& x, int count, int panel, int end, const Put& put) {
    const int times = (count + TOKENS - 1) / TOKENS;
    for (; panel + P <= end; panel += P)
        for (int n = 0; n < times; n++) {  // tiles of nearly the same size: a last one of 1 row would cost as much as one of several
            const int row = count * n / times;
            tiles<P, TOKENS>(matrix, x, panel, row, count * (n + 1) / times - row, put);
        }
    return panel;
}

// A matrix by all rows; the threads of a team take panels.
template <typename Put>
void multiply(const GlassMatrix& matrix, const Rows& x, int count, Team& team, const Put& put) {
    team.parallel_for(matrix.panels, PANELS_ONE_TOKEN, [&](int panel, int end) {
        if (count == 1)
            for (; panel + PANELS_ONE_TOKEN <= end; panel += PANELS_ONE_TOKEN) tile<PANELS_ONE_TOKEN, 1>(matrix, x, panel, 0, put);
        panel = panels<PANELS>(matrix, x, count, panel, end, put);
        panels<1>(matrix, x, count, panel, end, put);
    });
}

}  // namespace glass
