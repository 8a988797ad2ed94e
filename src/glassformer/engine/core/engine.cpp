// The door. The same sources are built into one library for each instruction set; the plain one can be asked which of them
// this machine has.
#include <cmath>
#include <cstring>
#include <exception>

#include "matrix.hpp"
#include "model.hpp"

extern "C" {

struct GlassEngine {
    glass::Team team;
    explicit GlassEngine(int threads) : team(threads) {}
};

int glass_has(const char* way) {
    if (!std::strcmp(way, "plain")) return 1;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!std::strcmp(way, "avx2")) return __builtin_cpu_supports("avx2") != 0;  // whatever has it can halve floats too
    if (!std::strcmp(way, "avx512"))
        return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    return 0;
}

GlassEngine* glass_open(int threads) {
    try {
        return new GlassEngine(threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}

void glass_close(GlassEngine* engine) { delete engine; }

// 0: done; 1: there is no memory for it.
int glass_step(GlassEngine* engine, const GlassModel* model, const GlassBatch* batch, const GlassCache* cache) {
    try {
        glass::forward(*model, *batch, *cache, engine->team);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}

// The sum of e^(x - top) over each row; summed in parts, which keeps the digits.
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
            Floats part = none();
            for (int i = from; i < std::min(whole, from + PART); i += LANES) part += exponential(load(row + i) - top);
            total += part;
        }
        return sum(total);
    };
    if (count == 1) {  // not worth calling the team for
        sums[0] = one(rows, all(tops[0]));
        return;
    }
    engine->team.run([&](int) {
        engine->team.share(count, 1, [&](int n, int end) {
            for (; n < end; n++) sums[n] = one(rows + at(n, size), all(tops[n]));
        });
        engine->team.meet();
    });
}

// Every weight once by a vector, and nothing else: the least that a token can take.
void glass_bare(GlassEngine* engine, const GlassModel* model) {
    const glass::Rows x(1, std::max(model->width, model->neurons));
    glass::Team& team = engine->team;
    team.run([&](int) {
        glass::Floats total = glass::none();
        const auto through = [&](const GlassMatrix& matrix) {
            glass::multiply(matrix, x, 1, team, [&](int, int, glass::Floats value) { total += value; });
            team.meet();
        };
        for (int layer = 0; layer < model->layers; layer++) {
            const GlassBlock& block = model->blocks[layer];
            for (const GlassMatrix* matrix : {&block.qkv, &block.proj, &block.up, &block.down}) through(*matrix);
        }
        through(model->head);
        volatile float kept = glass::sum(total);  // so that no compiler leaves the work out
        (void)kept;
    });
}
}
