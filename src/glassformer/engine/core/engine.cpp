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

// The sum of e^(x - top) over a row of any size; summed in parts, which keeps the digits.
float glass_exponential_sum(const float* row, int size, float top) {
    using namespace glass;
    constexpr int PART = 64 * LANES;
    float last[LANES];
    for (float& one : last) one = -INFINITY;
    const int whole = size / LANES * LANES;
    std::copy(row + whole, row + size, last);
    Floats total = exponential(load(last) - all(top));
    for (int from = 0; from < whole; from += PART) {
        Floats part = none();
        for (int i = from; i < std::min(whole, from + PART); i += LANES) part += exponential(load(row + i) - all(top));
        total += part;
    }
    return sum(total);
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
