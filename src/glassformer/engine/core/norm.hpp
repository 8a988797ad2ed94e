// Layer normalization of one row.
#pragma once
#include <cmath>

#include "floats.hpp"
#include "matrix.hpp"

namespace glass {

inline void normalize(const float* from, int size, const GlassNorm& norm, float eps, float* to) {
    const int room = padded(size);
    Floats total = zero();
    for (int i = 0; i < room; i += LANES) total += load(from + i);
    const Floats mean = splat(horizontal_sum(total) / static_cast<float>(size));
    Floats squares = zero();
    for (int i = 0; i < room; i += LANES) {
        const Floats away = select(lane_indices() + splat(i) < splat(size), load(from + i) - mean, zero());
        squares += away * away;
    }
    const Floats by = splat(1.0f / std::sqrt(horizontal_sum(squares) / static_cast<float>(size) + eps));
    for (int i = 0; i < room; i += LANES)
        store(to + i, ((load(from + i) - mean) * by) * load(norm.gain + i) + load(norm.bias + i));
}

}  // namespace glass
