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
constexpr int MANY = 16;    // tokens that make the work of one layer worth calling a team for

struct Run {  // of rows that are one text's, behind each other: their attention is worked out together
    int first, count;
};

// The floats of one chunk of tokens on their way through the model, each array (tokens, its padded size).
struct Chunk {
    int width, wide_qkv, neurons;
    std::vector<float> stream, qkv, mix, hidden;
    std::vector<int> tokens;  // which of the batch they are
    std::vector<Run> runs;
    Rows x;
    Chunk(const GlassModel& model, int most)
        : width(padded(model.width)), wide_qkv(padded(3 * model.width)), neurons(padded(model.neurons)), stream(at(most, width)),
          qkv(at(most, wide_qkv)), mix(at(most, width)), hidden(at(most, neurons)), x(most, std::max(model.width, model.neurons)) {}

    int count() const { return static_cast<int>(tokens.size()); }

    void take(const GlassBatch& batch, int first, int size) {
        tokens.clear();
        for (int n = 0; n < size; n++) tokens.push_back(first + n);
        find_runs(batch);
    }

    // Go on with the tokens alone that are scored.
    void keep_scored(const GlassBatch& batch) {
        int kept = 0;
        for (int n = 0; n < count(); n++) {
            if (!std::binary_search(batch.scored, batch.scored + batch.scored_count, tokens[static_cast<Size>(n)])) continue;
            std::copy_n(stream.begin() + at_row(n, width), width, stream.begin() + at_row(kept, width));
            std::copy_n(qkv.begin() + at_row(n, wide_qkv), wide_qkv, qkv.begin() + at_row(kept, wide_qkv));
            tokens[static_cast<Size>(kept++)] = tokens[static_cast<Size>(n)];
        }
        tokens.resize(static_cast<Size>(kept));
        find_runs(batch);
    }

  private:
    static std::ptrdiff_t at_row(int row, int step) { return static_cast<std::ptrdiff_t>(at(row, step)); }

    void find_runs(const GlassBatch& batch) {
        runs.clear();
        for (int n = 0; n < count(); n++) {
            const int token = tokens[static_cast<Size>(n)], before = n ? tokens[static_cast<Size>(n - 1)] : 0;
            const bool goes_on = n > 0 && runs.back().count < QUERIES && batch.rows[token] == batch.rows[before] &&
                                 batch.positions[token] == batch.positions[before] + 1;
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
        const int token = chunk.tokens[static_cast<Size>(n)];
        const auto id = static_cast<Size>(batch.ids[token]);
        const GlassMatrix& tokens = model.tokens;
        const std::int8_t* row = tokens.weights + id / LANES * at(LANES, tokens.columns) + id % LANES * FOUR;
        const float* position = model.positions + at(batch.positions[token], chunk.width);
        float* to = chunk.stream.data() + at(n, chunk.width);
        for (int i = 0; i < chunk.width; i++)
            to[i] = static_cast<float>(row[i / FOUR * FOUR * LANES + i % FOUR]) * tokens.scales[id] + position[i];
    }

    // All rows, normalized or as they are, through a matrix; put(row, panel, sixteen numbers) takes what comes out.
    template <typename Put>
    void product(const GlassMatrix& matrix, const std::vector<float>& from, const GlassNorm* norm, const Put& put) const {
        const int step = matrix.columns;
        team.share(chunk.count(), 1, [&](int n, int end) {
            std::vector<float> normed(norm ? static_cast<Size>(step) : 0);
            for (; n < end; n++) {
                const float* row = from.data() + at(n, step);
                if (norm) normalize(row, model.width, *norm, model.norm_eps, normed.data());
                chunk.x.put(n, norm ? normed.data() : row, step);
            }
        });
        team.meet();
        multiply(matrix, chunk.x, chunk.count(), team, put);
        team.meet();
    }

    void keep_keys(int layer) const {
        const int width = model.width / model.heads;
        team.share(chunk.count() * model.heads, model.heads, [&](int n, int end) {
            for (; n < end; n++) {
                const int row = n / model.heads, h = n % model.heads, token = chunk.tokens[static_cast<Size>(row)];
                const float* key = chunk.qkv.data() + at(row, chunk.wide_qkv) + model.width + h * width;
                keep(Head(model, cache, layer, batch.rows[token], h), batch.positions[token], key, key + model.width);
            }
        });
        team.meet();
    }

    void attention(int layer) const {
        const int width = model.width / model.heads, runs = static_cast<int>(chunk.runs.size());
        const Size row = static_cast<Size>(chunk.wide_qkv), groups = static_cast<Size>(cache.groups) * LANES, room = static_cast<Size>(padded(width));
        team.share(runs * model.heads, 1, [&](int n, int end) {
            std::vector<float> weights(QUERIES * groups), mixed(QUERIES * room);
            for (; n < end; n++) {  // head by head: its keys and values stay near
                const Run& run = chunk.runs[static_cast<Size>(n % runs)];
                const int h = n / runs, token = chunk.tokens[static_cast<Size>(run.first)], position = batch.positions[token];
                const Head head(model, cache, layer, batch.rows[token], h);
                const float* query = chunk.qkv.data() + at(run.first, chunk.wide_qkv) + h * width;
                if (run.count == QUERIES)
                    attend<QUERIES>(head, query, row, position, weights.data(), groups, mixed.data(), room);
                else
                    for (int q = 0; q < run.count; q++)
                        attend<1>(head, query + static_cast<Size>(q) * row, row, position + q, weights.data(), groups,
                                  mixed.data() + static_cast<Size>(q) * room, room);
                for (int q = 0; q < run.count; q++)
                    std::memcpy(chunk.mix.data() + at(run.first + q, chunk.width) + h * width, mixed.data() + static_cast<Size>(q) * room,
                                sizeof(float) * static_cast<Size>(width));
            }
        });
        team.meet();
    }

    void block(int me, int layer) const {
        const GlassBlock& block = model.blocks[layer];
        const auto add = [&](int row, int panel, Floats value) {
            float* to = chunk.stream.data() + at(row, chunk.width) + panel * LANES;
            store(to, load(to) + value);
        };
        product(block.qkv, chunk.stream, &block.norm1, [&](int row, int panel, Floats value) {
            store(chunk.qkv.data() + at(row, chunk.wide_qkv) + panel * LANES, value);
        });
        keep_keys(layer);
        if (layer == model.layers - 1) {  // from here on only tokens that are scored are read
            if (me == 0) chunk.keep_scored(batch);
            team.meet();
        }
        attention(layer);
        product(block.proj, chunk.mix, nullptr, add);
        product(block.up, chunk.stream, &block.norm2, [&](int row, int panel, Floats value) {
            store(chunk.hidden.data() + at(row, chunk.neurons) + panel * LANES, activate(value, model.activation));
        });
        product(block.down, chunk.hidden, nullptr, add);
    }

    void head(float* logits) const {
        product(model.head, chunk.stream, &model.norm, [&](int row, int panel, Floats value) {
            float sixteen[LANES];
            store(sixteen, value);
            const int from = panel * LANES;
            std::memcpy(logits + at(row, model.vocab) + from, sixteen, sizeof(float) * static_cast<Size>(std::min(LANES, model.vocab - from)));
        });
    }

    void walk(int me, int layer, int end, float* logits) const {
        if (layer == 0) {
            team.share(chunk.count(), 1, [&](int n, int last) {
                for (; n < last; n++) embed(n);
            });
            team.meet();
        }
        for (; layer < end; layer++) block(me, layer);
        if (layer == model.layers) head(logits);
    }
};

}  // namespace

void forward(const GlassModel& model, const GlassBatch& batch, const GlassCache& cache, Team& team) {
    Chunk chunk(model, std::min(batch.count, CHUNK));
    float* logits = batch.logits;
    for (int first = 0; first < batch.count; first += CHUNK) {
        chunk.take(batch, first, std::min(CHUNK, batch.count - first));
        const Pass pass{model, batch, cache, chunk, team};
        const int at_once = chunk.count() > MANY ? 1 : model.layers;
        for (int layer = 0; layer < model.layers; layer += at_once)
            team.run([&](int me) { pass.walk(me, layer, layer + at_once, logits); });
        logits += at(chunk.count(), model.vocab);  // those of the tokens that were scored
    }
}

}  // namespace glass
