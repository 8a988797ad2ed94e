// The limits of a machine's integer products, in 10^9 operations a second (a multiplication or an addition is one):
// - a loop that never leaves the registers,
// - the matrices of a model by 128 rows, and nothing else of the model.
//
//     limits THREADS LAYERS WIDTH NEURONS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "matrix.hpp"
#include "processor.hpp"

using namespace glass;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int ROWS = 128, ROUNDS = 9;

// Each GLASS_PRODUCT is one instruction, or a sequence, for four columns of all lanes of a register: sixteen, or eight in half as
// wide ones; a tile's is for sixteen rows by sixteen outputs by 64 columns.
#if defined(GLASS_AMX)
constexpr double OPERATIONS = 2.0 * 16 * 16 * 64 * 6;
#define GLASS_PRODUCT(n) "tdpbssd %%tmm7, %%tmm6, %%tmm" #n "\n"
#define GLASS_PRODUCTS GLASS_PRODUCT(0) GLASS_PRODUCT(1) GLASS_PRODUCT(2) GLASS_PRODUCT(3) GLASS_PRODUCT(4) GLASS_PRODUCT(5)
#define GLASS_CLOBBERED "memory"  // tiles are nothing that a compiler keeps numbers in
#elif defined(__AVX2__)
#if defined(__AVX512VNNI__)
constexpr double OPERATIONS = 2.0 * 64 * 12;
#define GLASS_PRODUCT(n) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #n "\n"
#elif defined(__AVXVNNI__)
constexpr double OPERATIONS = 2.0 * 32 * 12;
#define GLASS_PRODUCT(n) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #n "\n"
#else
constexpr double OPERATIONS = 2.0 * 32 * 12;
#define GLASS_PRODUCT(n) "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\nvpmaddwd %%ymm14, %%ymm13, %%ymm13\nvpaddd %%ymm13, %%ymm" #n ", %%ymm" #n "\n"
#endif
#define GLASS_PRODUCTS                                                                                                               \
    GLASS_PRODUCT(0) GLASS_PRODUCT(1) GLASS_PRODUCT(2) GLASS_PRODUCT(3) GLASS_PRODUCT(4) GLASS_PRODUCT(5)                                \
    GLASS_PRODUCT(6) GLASS_PRODUCT(7) GLASS_PRODUCT(8) GLASS_PRODUCT(9) GLASS_PRODUCT(10) GLASS_PRODUCT(11)
#define GLASS_CLOBBERED "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm13"
#endif

#if defined(GLASS_PRODUCTS)
void in_registers(long times) {
#if defined(GLASS_AMX)
    const Tiles tiles;
#endif
    for (long n = 0; n < times; n++) asm volatile(GLASS_PRODUCTS : : : GLASS_CLOBBERED);
}
#else
constexpr double OPERATIONS = 0;
void in_registers(long) {}
#endif

// The best of some rounds: what disturbs one makes it slower, never faster.
template <typename Work>
double best(double operations, const Work& work) {
    double most = 0;
    for (int n = 0; n < ROUNDS; n++) {
        const auto began = Clock::now();
        work();
        most = std::max(most, operations / std::chrono::duration<double>(Clock::now() - began).count() / 1e9);
    }
    return most;
}

}  // namespace

int main(int, char** given) {
    if (!has(WAY)) return 1;
    const int threads = std::atoi(given[1]), layers = std::atoi(given[2]), width = std::atoi(given[3]), neurons = std::atoi(given[4]);
    Team team(threads);
    constexpr long TIMES = 4'000'000;
    std::printf("%.1f\n", best(threads * OPERATIONS * TIMES, [&] { team.run([&](int) { in_registers(TIMES); }); }));

    // One memory for the weights of all layers, as they lie in a model; what they are does not change the time.
    const int outputs[] = {3 * width, width, neurons, width}, inputs[] = {width, width, width, neurons};
    Size size = 0;
    for (int n = 0; n < 4; n++) size += offset(outputs[n], inputs[n]);
    std::vector<std::int8_t> weights(size * static_cast<Size>(layers) + AHEAD, 3);
    std::vector<float> scales(static_cast<Size>(std::max(3 * width, neurons)), 1.0f), row(static_cast<Size>(std::max(width, neurons)));
    std::minstd_rand random(1);
    for (float& number : row) {  // most are small, as in a model: AVX2 takes longer with neighbors that are large together
        number = -126;
        for (int n = 0; n < 4; n++) number += static_cast<float>(random() % 64);
    }
    std::vector<float> to(static_cast<Size>(ROWS) * scales.size());
    Rows x(ROWS, std::max(width, neurons));
    const double operations = 2.0 * ROWS * static_cast<double>(size) * layers;
    std::printf("%.1f\n", best(operations, [&] {
        const std::int8_t* from = weights.data();
        for (int n = 0; n < 4 * layers; n++) {
            const GlassMatrix matrix{from, nullptr, scales.data(), nullptr, outputs[n % 4] / LANES, inputs[n % 4]};
            for (int r = 0; r < ROWS; r++) put_row(x, r, row.data(), matrix);
            team.run([&](int) {
                multiply(matrix, x, ROWS, team, [&](int at, int panel, Floats value) {
                    store(to.data() + offset(at, matrix.panels * LANES) + panel * LANES, value);
                });
            });
            from += offset(outputs[n % 4], inputs[n % 4]);
        }
    }));
}
