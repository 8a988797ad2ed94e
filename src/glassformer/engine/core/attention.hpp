// Attention in floats. The output of a query depends on nothing but its own text: neither on the queries that are computed with it
// nor on the row of the cache.
#pragma once
#include <cmath>

#include "floats.hpp"
#include "matrix.hpp"

namespace glass {

constexpr int QUERIES = 4;  // that are computed together: their sums stay in registers

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

// Scores of G × 16 positions for Q queries: even and odd terms are summed apart, so that an addition does not wait for the one
// before it.
template <int Q, int G>
inline void score(const float* query, Size row, const Half* keys, int width, Floats (&out)[G][Q]) {
    constexpr int AT_ONCE = Q == 1 ? PARTS : 1;  // parts of a group
    const Size group = offset(width, LANES);
    for (int first = 0; first < PARTS; first += AT_ONCE) {
        FloatPart chains[G][AT_ONCE][Q][2] = {};
        const auto add = [&](int k, int chain) {
            for (int g = 0; g < G; g++)
                for (int i = 0; i < AT_ONCE; i++) {
                    const FloatPart key = part(keys + static_cast<Size>(g) * group + offset(k, LANES) + (first + i) * WIDE);
                    for (int q = 0; q < Q; q++)
                        chains[g][i][q][chain] += broadcast(query[static_cast<Size>(q) * row + static_cast<Size>(k)]) * key;
                }
        };
        int k = 0;
        for (; k + 2 <= width; k += 2) add(k, 0), add(k + 1, 1);
        if (k < width) add(k, 0);
        for (int g = 0; g < G; g++)
            for (int i = 0; i < AT_ONCE; i++)
                for (int q = 0; q < Q; q++) out[g][q].part[first + i] = chains[g][i][q][0] + chains[g][i][q][1];
    }
}

// The weighted sum of the values, V × 16 columns of it.
template <int Q, int V>
inline void weighted_sum(const float* weights, Size row, const Half* values, int count, int step, const float (&by)[Q], float* mix,
                         Size mix_row) {
    Floats found[Q][V];
    for (auto& query : found)
        for (auto& one : query) one = zero();
#pragma GCC unroll 1
    for (int n = 0; n < count; n++, values += step) {
        Floats value[V];
        for (int v = 0; v < V; v++) value[v] = load(values + v * LANES);
        for (int q = 0; q < Q; q++) {
            const Floats weight = splat(weights[static_cast<Size>(q) * row + static_cast<Size>(n)]);
            for (int v = 0; v < V; v++) found[q][v] += weight * value[v];
        }
    }
    for (int q = 0; q < Q; q++)
        for (int v = 0; v < V; v++) store(mix + static_cast<Size>(q) * mix_row + v * LANES, found[q][v] * splat(by[q]));
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

// Q queries of one text, at consecutive positions: scores, softmax, weighted sum of the values. `weights` has space for Q rows of
// all groups; positions after a query's own get the weight 0, which changes no bit of a sum.
template <int Q>
void attend(const Head& head, const float* query, Size row, int position, float* weights, Size weights_row, float* mix, Size mix_row) {
    constexpr int G = Q == 1 ? 2 : 1, V = Q == 1 ? 4 : PARTS == 1 ? 2 : 1;
    const int count = position + Q, groups = padded(count) / LANES;
    Floats most[Q];
    for (Floats& one : most) one = splat(-INFINITY);
    int group = 0;
    for (; group + G <= groups; group += G) score_groups<Q, G>(head, query, row, position, group, weights, weights_row, most);
    for (; group < groups; group++) score_groups<Q, 1>(head, query, row, position, group, weights, weights_row, most);
    float by[Q];
    for (int q = 0; q < Q; q++) {
        float* mine = weights + static_cast<Size>(q) * weights_row;
        const Floats top = splat(horizontal_max(most[q]));
        Floats total = zero();
        for (group = 0; group < groups; group++) {
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
