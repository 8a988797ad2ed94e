// What the engine knows of a model. Plain data: the owner of the numbers keeps them alive.
//
// Every row of numbers is padded with zeros to a multiple of sixteen, and stays zero there on its way through the model: no
// loop has a tail.
#pragma once
#include <cstdint>

#include "team.hpp"

extern "C" {

struct GlassMatrix {
    const std::int8_t* weights;  // (panels, columns / 4, 16, 4): sixteen rows lie together
    const float* scales;         // (16 × panels,)
    const std::int32_t* sums;    // (16 × panels,): of the weights of each row
    const float* bias;           // (16 × panels,), or null
    std::int32_t panels, columns;
};

struct GlassNorm {
    const float* gain;
    const float* bias;
};

struct GlassBlock {
    GlassNorm norm1, norm2;
    GlassMatrix qkv, proj, up, down;
};

struct GlassModel {
    std::int32_t layers, heads, width, neurons, vocab, context, activation;
    float norm_eps;
    GlassMatrix tokens;      // rows are looked up here
    GlassMatrix head;        // and scored by this one: the same numbers, where the matrix is tied
    const float* positions;  // (context, padded width)
    GlassNorm norm;
    const GlassBlock* blocks;
};

// The tokens of one call: of each, its row of the cache and its position in that row's text. A row's tokens stand together, in
// order.
struct GlassBatch {
    std::int32_t count, scored_count;
    const std::int64_t* ids;
    const std::int32_t* rows;
    const std::int32_t* positions;
    const std::int32_t* scored;  // which of the tokens are scored, in order
    float* logits;               // (scored_count, vocab)
};

// In half precision. Keys lie in groups of sixteen positions, (layers, rows, heads, groups, head width, 16); values as
// (layers, rows, heads, 16 × groups, padded head width).
struct GlassCache {
    std::uint16_t* keys;
    std::uint16_t* values;
    std::int32_t rows, groups;
};
}

namespace glass {

void forward(const GlassModel&, const GlassBatch&, const GlassCache&, Team&);

}  // namespace glass
