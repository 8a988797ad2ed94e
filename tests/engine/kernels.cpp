// The kernels one by one, as tests call them.
#include "attention.hpp"
#include "norm.hpp"

using namespace glass;

extern "C" {

// Rows of floats through a matrix: (count, columns) -> (count, 16 × panels).
void glass_multiply(const GlassMatrix* matrix, const float* from, int count, float* to) {
    Rows x(count, matrix->columns);
    for (int n = 0; n < count; n++) put_row(x, n, from + offset(n, matrix->columns), *matrix);
    Team alone(1);
    multiply(*matrix, x, count, alone,
             [&](int row, int panel, Floats value) { store(to + offset(row, matrix->panels * LANES) + panel * LANES, value); });
}

float glass_quantize(const float* from, int columns, std::int8_t* to) { return quantize(from, columns, to); }

// Every weight of a matrix, before the scale of its row: (16 × panels, columns).
void glass_weights(const GlassMatrix* matrix, std::int32_t* to) {
    for (int row = 0; row < matrix->panels * LANES; row++)
        for (int column = 0; column < matrix->columns; column++) *to++ = weight_at(*matrix, static_cast<Size>(row), column);
}

void glass_normalize(const float* from, int size, const GlassNorm* norm, float eps, float* to) { normalize(from, size, *norm, eps, to); }

void glass_activate(const float* from, int size, int kind, float* to) {
    for (int i = 0; i < size; i += LANES) store(to + i, activate(load(from + i), kind));
}

void glass_exponential(const float* from, int size, float* to) {
    for (int i = 0; i < size; i += LANES) store(to + i, exponential(load(from + i)));
}

void glass_halve(const float* from, int size, Half* to, float* back) {
    for (int i = 0; i < size; i += LANES) {
        store(to + i, load(from + i));
        store(back + i, load(to + i));
    }
}

// One head's attention of a text, its last `count` positions asked: queries (count, width), keys and values (length, width), into
// (count, padded width). `together`: as many queries at once as a pass takes.
void glass_attend(int width, int length, int count, int together, const float* queries, const float* keys, const float* values, float* to) {
    const int groups = padded(length) / LANES, step = padded(width);
    std::vector<Half> kept_keys(offset(groups, width) * LANES), kept_values(offset(groups, step) * LANES);
    GlassModel model{};
    model.heads = 1, model.width = width;
    const Head head(model, GlassCache{kept_keys.data(), kept_values.data(), 1, groups}, 0, 0, 0);
    for (int n = 0; n < length; n++) write_kv(head, n, keys + offset(n, width), values + offset(n, width));
    std::vector<float> weights(QUERIES * static_cast<Size>(groups) * LANES);
    const auto row = static_cast<Size>(width), weights_row = static_cast<Size>(groups) * LANES, mix_row = static_cast<Size>(step);
    const int first = length - count;
    int n = 0;
    for (; together && n + QUERIES <= count; n += QUERIES)
        attend<QUERIES>(head, queries + offset(n, width), row, first + n, weights.data(), weights_row, to + offset(n, step), mix_row);
    for (; n < count; n++)
        attend<1>(head, queries + offset(n, width), row, first + n, weights.data(), weights_row, to + offset(n, step), mix_row);
}
}
