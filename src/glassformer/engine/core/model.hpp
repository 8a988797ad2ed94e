// A model, as the engine reads it. Plain data: the caller owns the memory. The structs of native.py have the same fields.
//
// Every row of numbers is padded with zeros to a multiple of sixteen, and the padding stays zero through the whole model: no loop
// needs a scalar remainder.
#pragma once
#include <cstdint>
#include <memory>

#include "team.hpp"

extern "C" {

struct GlassMatrix {
    const std::int8_t* weights;      // of eight bits, or of four: see dots.hpp
    const std::int8_t* multipliers;  // of groups of columns, (panels, groups, 16); null if the weights have eight bits
    const float* scales;             // (16 × panels,)
    const float* bias;               // (16 × panels,), or null
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
    GlassMatrix tokens;      // the embedding
    GlassMatrix head;        // the output matrix; the same memory as the embedding if the two are tied
    const float* positions;  // (context, padded width)
    GlassNorm norm;
    const GlassBlock* blocks;
};

// The tokens of one call: for each, its row of the cache and its position in that row's text. The tokens of a row are consecutive,
// in order.
struct GlassBatch {
    std::int32_t count, scored_count;
    const std::int64_t* ids;
    const std::int32_t* rows;
    const std::int32_t* positions;
    const std::int32_t* scored;  // indices of the tokens whose logits are asked for, ascending
    float* logits;               // (scored_count, vocab)
};

// In half precision. Keys are stored in groups of sixteen positions, (layers, rows, heads, groups, head width, 16); values as
// (layers, rows, heads, 16 × groups, padded head width).
struct GlassCache {
    std::uint16_t* keys;
    std::uint16_t* values;
    std::int32_t rows, groups;
};
}

namespace glass {

struct Chunk;

// `kept` is the memory of one step for the next ones of the same model: fresh pages cost more than the work of a short step.
void forward(const GlassModel&, const GlassBatch&, const GlassCache&, Team&, std::shared_ptr<Chunk>& kept);

}  // namespace glass
