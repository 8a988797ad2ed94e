// A small model of odd shapes with numbers from a formula, run on whatever instruction set this is built for: prints a hash of its
// logits, which must be the same for all, and says where a batch, its chunks or its threads change a bit.
#include <cstdio>
#include <cstring>
#include <vector>

#include "../../src/glassformer/engine/core/matrix.hpp"
#include "../../src/glassformer/engine/core/processor.hpp"

using glass::offset;
using glass::LANES;
using glass::padded;

namespace {

std::uint64_t state = 88172645463325252ull;

float number() {  // between -1 and 1
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
}

struct Matrix {
    std::vector<std::int8_t> weights, multipliers;
    std::vector<float> scales, bias;
    GlassMatrix core;
    Matrix(int outputs, int inputs, bool biased, int bits) {
        const int rows = padded(outputs), columns = padded(inputs), groups = glass::groups_of(columns);
        const bool four = bits == 4;
        weights.resize(offset(rows, columns * bits / 8), four ? static_cast<std::int8_t>(0x88) : 0);  // zeros are stored as 8
        multipliers.resize(offset(rows, groups)), scales.resize(offset(rows, 1)), bias.resize(offset(rows, 1));
        for (int r = 0; r < outputs; r++) {
            scales[offset(r, 1)] = (2.0f + number()) * (four ? 2e-4f : 1e-3f), bias[offset(r, 1)] = 0.1f * number();
            for (int g = 0; four && g < groups; g++)
                multipliers[offset(r / LANES * groups + g, LANES) + offset(r % LANES, 1)] = static_cast<std::int8_t>(64.0f + 63.0f * number());
            for (int c = 0; c < inputs; c++) {
                const std::size_t lane = offset(r % LANES, 4) + offset(c % 4, 1), panel = offset(r / LANES, columns * bits / 8) * LANES;
                if (!four) {
                    weights[panel + offset(c / 4, 64) + lane] = static_cast<std::int8_t>(127.0f * number());
                    continue;
                }
                std::int8_t& both = weights[panel + offset(c / 8, 64) + lane];
                const int value = static_cast<int>(8.0f + 8.0f * number()) & 15, high = c / 4 % 2;
                both = static_cast<std::int8_t>(high ? (both & 15) | value << 4 : (both & 240) | value);
            }
        }
        core = {weights.data(), four ? multipliers.data() : nullptr, scales.data(), biased ? bias.data() : nullptr, rows / LANES, columns};
    }
};

std::vector<float> row(int size, float middle) {
    std::vector<float> made(offset(padded(size), 1));
    for (int i = 0; i < size; i++) made[offset(i, 1)] = middle + 0.2f * number();
    return made;
}

struct Cache {
    std::vector<std::uint16_t> keys, values;
    GlassCache core;
    Cache(const GlassModel& model, int rows, int length) {
        const int groups = padded(length) / LANES, width = model.width / model.heads;
        keys.resize(offset(model.layers * rows * model.heads, groups * width * LANES));
        values.resize(offset(model.layers * rows * model.heads, groups * LANES * padded(width)));
        core = {keys.data(), values.data(), rows, groups};
    }
};

std::shared_ptr<glass::Chunk> kept;  // by all steps of one model

struct Text {
    std::vector<std::int64_t> ids;
    std::vector<std::int32_t> rows, positions, scored;
    void add(int row, int from, int to, int vocab) {
        for (int n = from; n < to; n++) ids.push_back((n * 31 + row * 17 + 5) % vocab), rows.push_back(row), positions.push_back(n);
        scored.push_back(static_cast<std::int32_t>(ids.size()) - 1);
    }
    std::vector<float> read(const GlassModel& model, const Cache& cache, glass::Team& team) {
        std::vector<float> logits(offset(static_cast<int>(scored.size()), model.vocab));
        const GlassBatch batch{static_cast<int>(ids.size()), static_cast<int>(scored.size()), ids.data(), rows.data(),
                               positions.data(), scored.data(), logits.data()};
        glass::forward(model, batch, cache.core, team, kept);
        *this = Text();
        return logits;
    }
};

bool differ(const std::vector<float>& a, const float* b, const char* what) {
    const bool other = std::memcmp(a.data(), b, a.size() * sizeof(float)) != 0;
    if (other) std::printf("not the same bits: %s\n", what);
    return other;
}

int check(int layers, int heads, int width, int neurons, int vocab, int activation, int length, int bits) {
    kept.reset();
    std::vector<Matrix> matrices;
    std::vector<std::vector<float>> rows;
    matrices.reserve(static_cast<std::size_t>(4 * layers + 2)), rows.reserve(static_cast<std::size_t>(4 * layers + 3));
    std::vector<GlassBlock> blocks;
    const auto norm = [&] {
        rows.push_back(row(width, 1.0f)), rows.push_back(row(width, 0.0f));
        return GlassNorm{rows[rows.size() - 2].data(), rows.back().data()};
    };
    const auto matrix = [&](int outputs, int inputs, bool biased) {
        matrices.emplace_back(outputs, inputs, biased, bits);
        return matrices.back().core;
    };
    for (int layer = 0; layer < layers; layer++) {
        const GlassNorm norm1 = norm(), norm2 = norm();
        const GlassMatrix qkv = matrix(3 * width, width, true), proj = matrix(width, width, true);
        const GlassMatrix up = matrix(neurons, width, true), down = matrix(width, neurons, true);
        blocks.push_back({norm1, norm2, qkv, proj, up, down});
    }
    std::vector<float> positions;
    for (int n = 0; n < length; n++) {
        const std::vector<float> one = row(width, 0.0f);
        positions.insert(positions.end(), one.begin(), one.end());
    }
    const GlassMatrix tokens = matrix(vocab, width, false);
    const GlassModel model{layers, heads, width, neurons, vocab, length, activation, 1e-5f, tokens, tokens, positions.data(), norm(), blocks.data()};

    glass::Team one(1), two(2);
    Text text;
    Cache alone(model, 1, length);
    text.add(0, 0, length, vocab);
    const std::vector<float> want = text.read(model, alone, one);
    std::uint64_t hash = 1469598103934665603ull;
    for (const float value : want) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        hash = (hash ^ bits) * 1099511628211ull;
    }
    int wrong = 0;
    Cache pieces(model, 1, length);
    std::vector<float> got;
    for (int from = 0, piece = 1; from < length; from += piece, piece = piece % 7 + 1) {
        text.add(0, from, std::min(length, from + piece), vocab);
        got = text.read(model, pieces, two);
    }
    wrong += differ(want, got.data(), "in pieces, two threads");
    const int many = 5;
    Cache batch(model, many, length);
    for (int r = 0; r < many; r++) text.add(r, 0, r == 3 ? length - 1 : (length + r) / 2, vocab);
    text.read(model, batch, two);
    for (int r = 0; r < many; r++)
        if (r == 3)
            text.add(3, length - 1, length, vocab);  // this one is not the same text as above
        else
            text.add(r, (length + r) / 2, (length + r) / 2 + 1, vocab);
    got = text.read(model, batch, two);
    Cache third(model, 1, length);
    for (int n = 0; n < length; n++) text.ids.push_back((n * 31 + 3 * 17 + 5) % vocab), text.rows.push_back(0), text.positions.push_back(n);
    text.scored.push_back(length - 1);
    wrong += differ(text.read(model, third, one), got.data() + offset(3, vocab), "in a batch");
    std::printf("%d %d %d %d %d %d, %d bits: %016llx\n", layers, heads, width, neurons, vocab, activation, bits, static_cast<unsigned long long>(hash));
    return wrong;
}

}  // namespace

int main() {
    std::printf("%s\n", glass::WAY);
    glass::has(glass::WAY);  // a process that uses tiles must have asked for them
    int wrong = 0;
    for (const int bits : {8, 4}) {
        wrong += check(2, 2, 32, 64, 100, 0, 40, bits);
        wrong += check(2, 3, 51, 77, 97, 1, 150, bits);  // heads of 17, nothing a multiple of anything
        wrong += check(1, 1, 1, 3, 2, 2, 20, bits);
        wrong += check(3, 5, 80, 200, 1000, 0, 33, bits);   // heads of 16
        wrong += check(1, 4, 512, 1024, 300, 0, 70, bits);  // heads of 128
    }
    std::printf(wrong ? "WRONG\n" : "same bits\n");
    return wrong;
}
