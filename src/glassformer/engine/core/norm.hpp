// Layer normalization of one row.
#pragma once
#include <cmath>

#include "floats.hpp"
#include "matrix.hpp"

namespace glass {

inline void normalize(const float* from, int size, const GlassNorm& norm, float eps, float* to) {
    const int room = padded(size);
    Floats total = none();
    for (int i = 0; i < room; i += LANES) total += load(from + i);
    const Floats mean = all(sum(total) / static_cast<float>(size));
    Floats squares = none();
    for (int i = 0; i < room; i += LANES) {
        const Floats away = pick(lanes() + all(i) < all(size), load(from + i) - mean, none());
        squares += away * away;
    }
    const Floats by = all(1.0f / std::sqrt(sum(squares) / static_cast<float>(size) + eps));
    for (int i = 0; i < room; i += LANES)
        store(to + i, ((load(from + i) - mean) * by) * load(norm.gain + i) + load(norm.bias + i));
}

}  // namespace glass
