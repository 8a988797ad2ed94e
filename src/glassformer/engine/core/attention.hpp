// Attention in floats. The output of a query depends on nothing but its own text: neither on the queries that are computed with it
// nor on the row of the cache.
#pragma once
#include <cmath>

#include "floats.hpp"
#include "matrix.hpp"

namespace glass {

constexpr int QUERIES = PARTS == 1 ? 8 : 4;  // that are computed together: their sums stay in registers

// The keys and values of one head of one text.
struct Head {
    Half* keys;
    Half* values;
    int width, step;  // step: floats from one position's values to the next's
    Head(const GlassModel& model, const GlassCache& cache, int layer, int row, int head)
        : width(model.width / model.heads), step(padded(width)) {
        const Size which = (offset(layer, cache.rows) + static_cast<Size>(row)) * static_cast<Size>(model.heads) + static_cast<Size>(head);
        keys = cache.keys + which * offset(cache.groups, width) * LANES;
        values = cache.values + which * offset(cache.groups, step) * LANES;
    }
};

inline void write_kv(const Head& head, int position, const float* key, const float* value) {
    Half* keys = head.keys + offset(position / LANES, head.width) * LANES + position % LANES;
    Half* values = head.values + offset(position, head.step);
    for (int k = 0; k < head.width; k += LANES) {  // by sixteen, zeros at the end
        const Size count = static_cast<Size>(std::min(LANES, head.width - k));
        float sixteen[LANES] = {};
        Half halves[LANES];
        std::memcpy(sixteen, key + k, count * sizeof(float));
        store(halves, load(sixteen));
        for (Size i = 0; i < count; i++) keys[(static_cast<Size>(k) + i) * LANES] = halves[i];
        std::memcpy(sixteen, value + k, count * sizeof(float));
        store(values + k, load(sixteen));
    }
}

// Scores of G × 16 positions for Q queries. The terms of a score are added one after another, and G × Q scores at a time, so that
// an addition does not wait for the one before it.
template <int Q, int G>
inline void score(const float* query, Size row, const Half* keys, int width, Floats (&out)[G][Q]) {
    const Size group = offset(width, LANES);
    Floats sums[G][Q];
    unrolled<G>([&](auto g) { unrolled<Q>([&](auto q) { sums[g][q] = zero(); }); });
#pragma GCC unroll 1
    for (int k = 0; k < width; k++, keys += LANES) {
        Floats key[G];
        unrolled<G>([&](auto g) { key[g] = load(keys + g * group); });
        unrolled<Q>([&](auto q) {
            const Floats number = splat(query[q * row + static_cast<Size>(k)]);
            unrolled<G>([&](auto g) { sums[g][q] = multiply_add(number, key[g], sums[g][q]); });
        });
    }
    unrolled<G>([&](auto g) { unrolled<Q>([&](auto q) { out[g][q] = sums[g][q]; }); });
}

// The weighted sum of the values, V × 16 columns of it.
template <int Q, int V>
inline void weighted_sum(const float* weights, Size row, const Half* values, int count, int step, const float (&by)[Q], float* mix,
                         Size mix_row) {
    Floats sums[Q][V];
    unrolled<Q>([&](auto q) { unrolled<V>([&](auto v) { sums[q][v] = zero(); }); });
#pragma GCC unroll 1
    for (int n = 0; n < count; n++, values += step) {
        Floats value[V];
        unrolled<V>([&](auto v) { value[v] = load(values + v * LANES); });
        unrolled<Q>([&](auto q) {
            const Floats weight = splat(weights[q * row + static_cast<Size>(n)]);
            unrolled<V>([&](auto v) { sums[q][v] = multiply_add(weight, value[v], sums[q][v]); });
        });
    }
    unrolled<Q>([&](auto q) {
        unrolled<V>([&](auto v) { store(mix + q * mix_row + v * LANES, sums[q][v] * splat(by[q])); });
    });
}

// G groups of scores, scaled and masked.
template <int Q, int G>
inline void score_groups(const Head& head, const float* query, Size row, int position, int first, float* weights, Size weights_row,
                         Floats (&most)[Q]) {
    Floats found[G][Q];
    score<Q, G>(query, row, head.keys + offset(first, head.width) * LANES, head.width, found);
    const Floats scale = splat(1.0f / std::sqrt(static_cast<float>(head.width)));
    for (int g = 0; g < G; g++)
        for (int q = 0; q < Q; q++) {
            const int group = first + g;
            const Floats seen = select(lane_indices() < splat(position + q + 1 - group * LANES), found[g][q] * scale, splat(-INFINITY));
            most[q] = max(most[q], seen);
            store(weights + static_cast<Size>(q) * weights_row + group * LANES, seen);
        }
}

// As many groups as are left, up to G.
template <int Q, int G>
inline void score_some(const Head& head, const float* query, Size row, int position, int first, int left, float* weights, Size weights_row,
                       Floats (&most)[Q]) {
    if constexpr (G > 1) {
        if (left < G) return score_some<Q, G - 1>(head, query, row, position, first, left, weights, weights_row, most);
    }
    score_groups<Q, G>(head, query, row, position, first, weights, weights_row, most);
}

// Q queries of one text, at consecutive positions: scores, softmax, weighted sum of the values. `weights` has space for Q rows of
// all groups; positions after a query's own get the weight 0, which changes no bit of a sum.
template <int Q>
void attend(const Head& head, const float* query, Size row, int position, float* weights, Size weights_row, float* mix, Size mix_row) {
    constexpr int G = Q == 1 ? 8 / PARTS : PARTS == 1 ? 2 : 1, V = Q == 1 ? 4 : PARTS == 1 ? 2 : 1;
    const int count = position + Q, groups = padded(count) / LANES;
    Floats most[Q];
    for (Floats& one : most) one = splat(-INFINITY);
    for (int group = 0; group < groups; group += G)
        score_some<Q, G>(head, query, row, position, group, groups - group, weights, weights_row, most);
    float by[Q];
    for (int q = 0; q < Q; q++) {
        float* mine = weights + static_cast<Size>(q) * weights_row;
        const Floats top = splat(horizontal_max(most[q]));
        Floats total = zero();
        for (int group = 0; group < groups; group++) {
            const Floats weight = exponential(load(mine + group * LANES) - top);
            total += weight;
            store(mine + group * LANES, weight);
        }
        by[q] = 1.0f / horizontal_sum(total);
    }
    int start = 0;
    for (; start + V * LANES <= head.step; start += V * LANES)
        weighted_sum<Q, V>(weights, weights_row, head.values + start, count, head.step, by, mix + start, mix_row);
    for (; start < head.step; start += LANES)
        weighted_sum<Q, 1>(weights, weights_row, head.values + start, count, head.step, by, mix + start, mix_row);
}

}  // namespace glass
