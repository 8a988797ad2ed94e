// GPT-2's forward pass on int8 weights, for any number of tokens.
//
// The logits of a token depend on its own text alone: integer sums are exact, and every float operation has an order that
// neither the other tokens of the call nor the threads change.
#include "attention.hpp"
#include "matrix.hpp"
#include "model.hpp"
#include "norm.hpp"

namespace glass {

constexpr int CHUNK = 128;  // tokens that go through all layers together

struct Run {  // of consecutive positions of one text: their attention is computed together
    int first, count;
};

// The activations of one chunk of tokens, each array (tokens, its padded size). Everything that the threads need is allocated
// here, before they start: see team.hpp.
struct Chunk {
    int most, groups, threads;  // what there is room for: tokens, groups of positions that they look at, threads
    int width, qkv_width, neurons;
    Size scratch_size;  // floats of one thread: a normalized row, or the weights and the output of some queries
    std::vector<float> stream, qkv, mix, hidden, scratch;
    std::vector<int> tokens;  // their indices in the batch
    std::vector<Run> runs;
    Rows x;
    Chunk(const GlassModel& model, const GlassCache& cache, int most, int threads)
        : most(most), groups(cache.groups), threads(threads), width(padded(model.width)), qkv_width(padded(3 * model.width)), neurons(padded(model.neurons)),
          scratch_size(std::max(static_cast<Size>(width), QUERIES * (offset(cache.groups, LANES) + offset(1, padded(model.width / model.heads))))),
          stream(offset(most, width)), qkv(offset(most, qkv_width)), mix(offset(most, width)), hidden(offset(most, neurons)),
          scratch(static_cast<Size>(threads) * scratch_size), x(most, padded(std::max(model.width, model.neurons))) {
        tokens.reserve(static_cast<Size>(most));
        runs.reserve(static_cast<Size>(most));
    }

    float* scratch_of(int thread) { return scratch.data() + static_cast<Size>(thread) * scratch_size; }

    int count() const { return static_cast<int>(tokens.size()); }

    void take(const GlassBatch& batch, int first, int size) {
        tokens.clear();
        for (int n = 0; n < size; n++) tokens.push_back(first + n);
        find_runs(batch);
    }

    // Drop the tokens whose logits are not asked for.
    void keep_scored(const GlassBatch& batch) {
        int kept = 0;
        for (int n = 0; n < count(); n++) {
            if (!std::binary_search(batch.scored, batch.scored + batch.scored_count, tokens[static_cast<Size>(n)])) continue;
            std::copy_n(stream.begin() + row_offset(n, width), width, stream.begin() + row_offset(kept, width));
            std::copy_n(qkv.begin() + row_offset(n, qkv_width), qkv_width, qkv.begin() + row_offset(kept, qkv_width));
            tokens[static_cast<Size>(kept++)] = tokens[static_cast<Size>(n)];
        }
        tokens.resize(static_cast<Size>(kept));
        find_runs(batch);
    }

  private:
    static std::ptrdiff_t row_offset(int row, int step) { return static_cast<std::ptrdiff_t>(offset(row, step)); }

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

namespace {

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
        const float* position = model.positions + offset(batch.positions[token], chunk.width);
        float* to = chunk.stream.data() + offset(n, chunk.width);
        for (int i = 0; i < chunk.width; i++)
            to[i] = static_cast<float>(weight_at(tokens, id, i)) * tokens.scales[id] + position[i];
    }

    // All rows, normalized if there is a norm, times a matrix; put(row, panel, sixteen numbers) receives the products.
    template <typename Put>
    void product(int me, const GlassMatrix& matrix, const std::vector<float>& from, const GlassNorm* norm, const Put& put) const {
        const int step = matrix.columns;
        team.parallel_for(chunk.count(), 1, [&](int n, int end) {
            float* normed = chunk.scratch_of(me);
            for (; n < end; n++) {
                const float* row = from.data() + offset(n, step);
                if (norm) normalize(row, model.width, *norm, model.norm_eps, normed);
                put_row(chunk.x, n, norm ? normed : row, matrix);
            }
        });
        team.barrier();
        multiply(matrix, chunk.x, chunk.count(), team, put);
        team.barrier();
    }

    void write_keys_values(int layer) const {
        const int width = model.width / model.heads;
        team.parallel_for(chunk.count() * model.heads, model.heads, [&](int n, int end) {
            for (; n < end; n++) {
                const int row = n / model.heads, h = n % model.heads, token = chunk.tokens[static_cast<Size>(row)];
                const float* key = chunk.qkv.data() + offset(row, chunk.qkv_width) + model.width + h * width;
                write_kv(Head(model, cache, layer, batch.rows[token], h), batch.positions[token], key, key + model.width);
            }
        });
        team.barrier();
    }

    void attention(int me, int layer) const {
        const int width = model.width / model.heads, runs = static_cast<int>(chunk.runs.size());
        const Size row = static_cast<Size>(chunk.qkv_width), room = static_cast<Size>(padded(width));
        const Size groups = offset(cache.groups, LANES);
        team.parallel_for(runs * model.heads, 1, [&](int n, int end) {
            float *weights = chunk.scratch_of(me), *mixed = weights + QUERIES * groups;
            for (; n < end; n++) {  // head by head: its keys and values stay in the processor's cache
                const Run& run = chunk.runs[static_cast<Size>(n % runs)];
                const int h = n / runs, token = chunk.tokens[static_cast<Size>(run.first)], position = batch.positions[token];
                const Head head(model, cache, layer, batch.rows[token], h);
                const float* query = chunk.qkv.data() + offset(run.first, chunk.qkv_width) + h * width;
                if (run.count == QUERIES)
                    attend<QUERIES>(head, query, row, position, weights, groups, mixed, room);
                else
                    for (int q = 0; q < run.count; q++)
                        attend<1>(head, query + static_cast<Size>(q) * row, row, position + q, weights, groups,
                                  mixed + static_cast<Size>(q) * room, room);
                for (int q = 0; q < run.count; q++)
                    std::memcpy(chunk.mix.data() + offset(run.first + q, chunk.width) + h * width, mixed + static_cast<Size>(q) * room,
                                sizeof(float) * static_cast<Size>(width));
            }
        });
        team.barrier();
    }

    void block(int me, int layer) const {
        const GlassBlock& block = model.blocks[layer];
        const auto add = [&](int row, int panel, Floats value) {
            float* to = chunk.stream.data() + offset(row, chunk.width) + panel * LANES;
            store(to, load(to) + value);
        };
        product(me, block.qkv, chunk.stream, &block.norm1, [&](int row, int panel, Floats value) {
            store(chunk.qkv.data() + offset(row, chunk.qkv_width) + panel * LANES, value);
        });
        write_keys_values(layer);
        if (layer == model.layers - 1) {  // the other tokens were needed for their keys and values alone
            if (me == 0) chunk.keep_scored(batch);
            team.barrier();
        }
        attention(me, layer);
        product(me, block.proj, chunk.mix, nullptr, add);
        // Inlined, because AVX2 would pass sixteen lanes through memory: its whole prefill is a thirtieth faster.
        product(me, block.up, chunk.stream, &block.norm2, [&](int row, int panel, Floats value) __attribute__((always_inline)) {
            store(chunk.hidden.data() + offset(row, chunk.neurons) + panel * LANES, activate(value, model.activation));
        });
        product(me, block.down, chunk.hidden, nullptr, add);
    }

    void head(int me, float* logits) const {
        product(me, model.head, chunk.stream, &model.norm, [&](int row, int panel, Floats value) {
            const int from = panel * LANES, left = model.vocab - from;
            float* to = logits + offset(row, model.vocab) + from;
            if (left >= LANES) return store(to, value);
            float sixteen[LANES];
            store(sixteen, value);
            std::memcpy(to, sixteen, sizeof(float) * static_cast<Size>(left));
        });
    }

    void run_layer(int me, int layer, float* logits) const {
        if (layer == 0) {
            team.parallel_for(chunk.count(), 1, [&](int n, int last) {
                for (; n < last; n++) embed(n);
            });
            team.barrier();
        }
        block(me, layer);
        if (layer == model.layers - 1) head(me, logits);
    }
};

}  // namespace

void forward(const GlassModel& model, const GlassBatch& batch, const GlassCache& cache, Team& team, std::shared_ptr<Chunk>& kept) {
    const int most = std::min(batch.count, CHUNK);
    if (!kept || kept->most < most || kept->groups < cache.groups || kept->threads < team.size()) {
        kept.reset();  // before there is another: a larger step needs no memory of the smaller one
        kept = std::make_shared<Chunk>(model, cache, most, team.size());
    }
    Chunk& chunk = *kept;
    float* logits = batch.logits;
    for (int first = 0; first < batch.count; first += CHUNK) {
        chunk.take(batch, first, std::min(CHUNK, batch.count - first));
        const Pass pass{model, batch, cache, chunk, team};
        for (int layer = 0; layer < model.layers; layer++)  // each a run of its own: a thread that wakes late joins at the next one
            team.run([&](int me) { pass.run_layer(me, layer, logits); });
        logits += offset(chunk.count(), model.vocab);  // after the last layer, the chunk holds its scored tokens
    }
}

}  // namespace glass
