// GPT-2's forward pass on int8 weights, for any number of tokens.
//
// A token's numbers depend on its own text alone: whole-number sums are exact, and every float step has an order that neither
// the other tokens of the call nor the threads change.
#include "attention.hpp"
#include "matrix.hpp"
#include "model.hpp"
#include "norm.hpp"

namespace glass {
namespace {

constexpr int CHUNK = 128;  // tokens that go through all layers together

struct Run {  // of tokens of one text, behind each other: their attention is worked out together
    int first, count;
};

// The floats of one chunk of tokens on their way through the model, each array (tokens, its padded size).
struct Chunk {
    int first, count, width, wide_qkv, neurons;
    std::vector<float> stream, qkv, mix, hidden;
    std::vector<Run> runs;
    Rows x;
    Chunk(const GlassModel& model, int most)
        : first(0), count(0), width(padded(model.width)), wide_qkv(padded(3 * model.width)), neurons(padded(model.neurons)),
          stream(at(most, width)), qkv(at(most, wide_qkv)), mix(at(most, width)), hidden(at(most, neurons)),
          x(most, std::max(model.width, model.neurons)) {}

    void take(const GlassBatch& batch, int from, int size) {
        first = from, count = size;
        runs.clear();
        for (int n = 0; n < count; n++) {
            const bool goes_on = n > 0 && runs.back().count < QUERIES && batch.rows[first + n] == batch.rows[first + n - 1] &&
                                 batch.positions[first + n] == batch.positions[first + n - 1] + 1;
            if (goes_on)
                runs.back().count++;
            else
                runs.push_back({n, 1});
        }
    }
};

struct Pass {
    const GlassModel& model;
    const GlassBatch& batch;
    const GlassCache& cache;
    Chunk& chunk;
    Team& team;

    void embed(int n) const {
        const auto id = static_cast<Size>(batch.ids[chunk.first + n]);
        const GlassMatrix& tokens = model.tokens;
        const std::int8_t* row = tokens.weights + id / LANES * at(LANES, tokens.columns) + id % LANES * FOUR;
        const float* position = model.positions + at(batch.positions[chunk.first + n], chunk.width);
        float* to = chunk.stream.data() + at(n, chunk.width);
        for (int i = 0; i < chunk.width; i++)
            to[i] = static_cast<float>(row[i / FOUR * FOUR * LANES + i % FOUR]) * tokens.scales[id] + position[i];
    }

    // The rows of a product, made by all and waited for. Row n of it is token `which(n)`.
    template <typename Which>
    void prepare(int me, const std::vector<float>& from, int step, const GlassNorm* norm, int count, const Which& which) const {
        const Share share(count, 1, me, team.size());
        std::vector<float> normed(norm ? static_cast<Size>(step) : 0);
        for (int n = share.begin; n < share.end; n++) {
            const float* row = from.data() + at(which(n), step);
            if (norm) normalize(row, model.width, *norm, model.norm_eps, normed.data());
            chunk.x.put(n, norm ? normed.data() : row, step);
        }
        team.meet();
    }

    template <typename Put>
    void product(int me, const GlassMatrix& matrix, const std::vector<float>& from, int step, const GlassNorm* norm, const Put& put) const {
        prepare(me, from, step, norm, chunk.count, [](int n) { return n; });
        multiply(matrix, chunk.x, chunk.count, Share(matrix.panels, 1, me, team.size()), put);
    }

    void attention(int me, int layer) const {
        const int width = model.width / model.heads;
        const Share kept(chunk.count * model.heads, 1, me, team.size());
        for (int n = kept.begin; n < kept.end; n++) {
            const int token = n / model.heads, h = n % model.heads, of = chunk.first + token;
            const float* key = chunk.qkv.data() + at(token, chunk.wide_qkv) + model.width + h * width;
            keep(Head(model, cache, layer, batch.rows[of], h), batch.positions[of], key, key + model.width);
        }
        team.meet();
        const Size groups = static_cast<Size>(cache.groups) * LANES, room = static_cast<Size>(padded(width));
        std::vector<float> weights(QUERIES * groups), mixed(QUERIES * room);
        const int runs = static_cast<int>(chunk.runs.size());
        const Share share(runs * model.heads, 1, me, team.size());
        for (int n = share.begin; n < share.end; n++) {  // head by head: its keys and values stay near
            const Run& run = chunk.runs[static_cast<Size>(n % runs)];
            const int h = n / runs, of = chunk.first + run.first;
            const Head head(model, cache, layer, batch.rows[of], h);
            const float* query = chunk.qkv.data() + at(run.first, chunk.wide_qkv) + h * width;
            const auto row = static_cast<Size>(chunk.wide_qkv);
            if (run.count == QUERIES)
                attend<QUERIES>(head, query, row, batch.positions[of], weights.data(), groups, mixed.data(), room);
            else
                for (int q = 0; q < run.count; q++)
                    attend<1>(head, query + static_cast<Size>(q) * row, row, batch.positions[of] + q, weights.data(), groups,
                              mixed.data() + static_cast<Size>(q) * room, room);
            for (int q = 0; q < run.count; q++)
                std::memcpy(chunk.mix.data() + at(run.first + q, chunk.width) + h * width, mixed.data() + static_cast<Size>(q) * room,
                            sizeof(float) * static_cast<Size>(width));
        }
        team.meet();
    }

    void block(int me, int layer) const {
        const GlassBlock& block = model.blocks[layer];
        const auto add = [&](int row, int panel, Floats value) {
            float* to = chunk.stream.data() + at(row, chunk.width) + panel * LANES;
            store(to, load(to) + value);
        };
        product(me, block.qkv, chunk.stream, chunk.width, &block.norm1, [&](int row, int panel, Floats value) {
            store(chunk.qkv.data() + at(row, chunk.wide_qkv) + panel * LANES, value);
        });
        team.meet();
        attention(me, layer);
        product(me, block.proj, chunk.mix, chunk.width, nullptr, add);
        team.meet();
        product(me, block.up, chunk.stream, chunk.width, &block.norm2, [&](int row, int panel, Floats value) {
            store(chunk.hidden.data() + at(row, chunk.neurons) + panel * LANES, activate(value, model.activation));
        });
        team.meet();
        product(me, block.down, chunk.hidden, chunk.neurons, nullptr, add);
        team.meet();
    }

    void head(int me) const {
        const std::int32_t* begin = std::lower_bound(batch.scored, batch.scored + batch.scored_count, chunk.first);
        const std::int32_t* end = std::lower_bound(begin, batch.scored + batch.scored_count, chunk.first + chunk.count);
        const int count = static_cast<int>(end - begin);
        if (count == 0) return;
        prepare(me, chunk.stream, chunk.width, &model.norm, count, [&](int n) { return begin[n] - chunk.first; });
        float* logits = batch.logits + at(static_cast<int>(begin - batch.scored), model.vocab);
        multiply(model.head, chunk.x, count, Share(model.head.panels, 1, me, team.size()), [&](int row, int panel, Floats value) {
            float sixteen[LANES];
            store(sixteen, value);
            const int from = panel * LANES;
            std::memcpy(logits + at(row, model.vocab) + from, sixteen, sizeof(float) * static_cast<Size>(std::min(LANES, model.vocab - from)));
        });
    }

    void walk(int me) const {
        const Share mine(chunk.count, 1, me, team.size());
        for (int n = mine.begin; n < mine.end; n++) embed(n);
        team.meet();
        for (int layer = 0; layer < model.layers; layer++) block(me, layer);
        head(me);
    }
};

}  // namespace

void forward(const GlassModel& model, const GlassBatch& batch, const GlassCache& cache, Team& team) {
    Chunk chunk(model, std::min(batch.count, CHUNK));
    for (int first = 0; first < batch.count; first += CHUNK) {
        chunk.take(batch, first, std::min(CHUNK, batch.count - first));
        const Pass pass{model, batch, cache, chunk, team};
        team.run([&](int me) { pass.walk(me); });
    }
}

}  // namespace glass
