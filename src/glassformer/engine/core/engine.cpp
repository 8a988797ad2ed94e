// The functions that Python calls. The same sources are built into one library for each instruction set; the plain one says
// which of them this machine has. Nothing is checked here: native.py has checked every size, address and index. No exception
// may leave a function, because ctypes cannot catch it.
#include <cmath>
#include <exception>

#include "matrix.hpp"
#include "model.hpp"
#include "processor.hpp"

extern "C" {

struct GlassEngine {
    glass::Team team;
    std::shared_ptr<glass::Chunk> chunk;
    explicit GlassEngine(int threads) : team(threads) {}
};

int glass_has(const char* way) { return glass::has(way); }

GlassEngine* glass_open(int threads) {
    try {
        return new GlassEngine(threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}

void glass_close(GlassEngine* engine) { delete engine; }

// 0: done; 1: not enough memory.
int glass_step(GlassEngine* engine, const GlassModel* model, const GlassBatch* batch, const GlassCache* cache) {
    try {
        glass::forward(*model, *batch, *cache, engine->team, engine->chunk);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}

// The sum of e^(x - top) over each row; summed in parts, so that small terms are not lost in a large sum.
void glass_exponential_sums(GlassEngine* engine, const float* rows, int count, int size, const float* tops, float* sums) {
    using namespace glass;
    constexpr int PART = 64 * LANES;
    const auto one = [=](const float* row, const Floats top) {
        float last[LANES];
        for (float& value : last) value = -INFINITY;
        const int whole = size / LANES * LANES;
        std::copy(row + whole, row + size, last);
        Floats total = exponential(load(last) - top);
        for (int from = 0; from < whole; from += PART) {
            Floats part = zero();
            for (int i = from; i < std::min(whole, from + PART); i += LANES) part += exponential(load(row + i) - top);
            total += part;
        }
        return horizontal_sum(total);
    };
    if (count == 1) {  // too little work to wake the threads for
        sums[0] = one(rows, splat(tops[0]));
        return;
    }
    engine->team.run([&](int) {
        engine->team.parallel_for(count, 1, [&](int n, int end) {
            for (; n < end; n++) sums[n] = one(rows + offset(n, size), splat(tops[n]));
        });
        engine->team.barrier();
    });
}

// Every weight times a vector, and nothing else: the lower bound of the time of a token. 0: done; 1: not enough memory.
int glass_bare(GlassEngine* engine, const GlassModel* model) try {
    const glass::Rows x(1, glass::padded(std::max(model->width, model->neurons)));
    glass::Team& team = engine->team;
    team.run([&](int) {
        glass::Floats total = glass::zero();
        const auto through = [&](const GlassMatrix& matrix) {
            glass::multiply(matrix, x, 1, team, [&](int, int, glass::Floats value) { total += value; });
            team.barrier();
        };
        for (int layer = 0; layer < model->layers; layer++) {
            const GlassBlock& block = model->blocks[layer];
            for (const GlassMatrix* matrix : {&block.qkv, &block.proj, &block.up, &block.down}) through(*matrix);
        }
        through(model->head);
        volatile float kept = glass::horizontal_sum(total);  // so that no compiler leaves the work out
        (void)kept;
    });
    return 0;
} catch (const std::exception&) {
    return 1;
}
}
