// Integer dot products: panels of weights by rows of activations, summed in 32 bits, exactly.
//
// A panel is sixteen rows of a matrix that lie together, four columns at a time. Four numbers of an activation row are broadcast over
// a register, so that its lanes are the sums of sixteen rows and nothing is added across lanes.
//
// Eight bits: (columns / 4, 16 rows, 4). Four bits: (columns / 8, 16 rows, 4 bytes); the low halves of four bytes are the first four
// columns, the high halves the next four, and each is stored plus 8. GROUP columns of a row share a multiplier of 0 to 127, and the
// sum of a row is the sum of its groups, each times its multiplier. All of it is integers, so no order of additions changes a bit.
//
// One version is compiled, for the instruction set that the file is built for; all give the same sums. Each has
// - `prepare8` and `prepare4`, which bring a quantized row into the form that the version needs,
// - `dots8` and `dots4`, which multiply P panels by T rows,
// - `Tile`: how many panels and rows at once keep the sums in registers, for each number of bits; of many rows it may be fewer.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "floats.hpp"
#include "model.hpp"
#include "unrolled.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(GLASS_NEON)
#include <arm_neon.h>
#endif

namespace glass {

using Size = std::size_t;

inline Size offset(int row, int step) { return static_cast<Size>(row) * static_cast<Size>(step); }

constexpr int FOUR = 4, EIGHT = 8;
constexpr int GROUP = 32;     // columns that share a multiplier
constexpr Size LINE = 64;     // bytes of a cache line
constexpr Size AHEAD = 4096;  // bytes of weights that are prefetched

inline int groups_of(int columns) { return (columns + GROUP - 1) / GROUP; }

// Bytes from one row of activations to the next: a cache line more than their columns. Rows 4,096 bytes apart would share one set of
// the first cache, which eight of them fill.
inline Size row_step(int columns) { return static_cast<Size>(columns) + LINE; }

// What was subtracted from four numbers of a row, from a column on: see dots_avx2.hpp.
struct Excess {
    int column;
    std::int8_t four[FOUR];
};

// Activations, quantized to int8, and what an instruction set needs of them to make its sums exact.
struct Rows {
    std::vector<std::int8_t> numbers;
    std::vector<float> scales;
    std::vector<std::int32_t> sums;           // of each row
    std::vector<std::int32_t> starts;         // of each row and group: what its sum starts from
    std::vector<std::vector<Excess>> excess;  // of each row

    Rows(int count, int columns)
        : numbers(static_cast<Size>((count + LANES - 1) / LANES * LANES) * row_step(columns)), scales(static_cast<Size>(count)), sums(static_cast<Size>(count)),
          starts(offset(count, groups_of(columns))), excess(static_cast<Size>(count)) {
        for (auto& one : excess) one.reserve(static_cast<Size>(columns / FOUR));  // here, because threads must not allocate
    }

    std::int8_t* row(int which, int columns) { return numbers.data() + static_cast<Size>(which) * row_step(columns); }
    const std::int8_t* row(int which, int columns) const { return numbers.data() + static_cast<Size>(which) * row_step(columns); }
};

// The weights of some panels, as a kernel walks through them, and of the panels that come next.
struct Panels {
    const std::int8_t* weights;
    const std::int8_t* multipliers;
    const std::int8_t* next;
    Size step, multiplier_step;  // bytes from one panel to the next
    int columns;

    Panels(const GlassMatrix& matrix, int panel, int count = 1)
        : step(offset(LANES, matrix.columns) / (matrix.multipliers ? 2 : 1)), multiplier_step(offset(LANES, groups_of(matrix.columns))),
          columns(matrix.columns) {
        weights = matrix.weights + static_cast<Size>(panel) * step;
        next = weights + static_cast<Size>(count) * step;
        multipliers = matrix.multipliers ? matrix.multipliers + static_cast<Size>(panel) * multiplier_step : nullptr;
    }
};

// Prefetch weights of panel p. One row waits for memory: what is AHEAD of a place is fetched, there or in the panel that comes next.
// Weights of four bits are fetched so for several rows too, the first time that a panel is read: they are half as many bytes.
// Always inlined, because GCC takes a function that does nothing but prefetch for one that does nothing, and drops its calls.
GLASS_INLINE void prefetch_ahead(const Panels& panels, int p, Size place) {
    const Size ahead = place + AHEAD;
    const std::int8_t* from = ahead < panels.step ? panels.weights + ahead : panels.next + (ahead - panels.step);
    __builtin_prefetch(from + static_cast<Size>(p) * panels.step);
}

// Several rows compute longer with a panel of eight bits than memory takes for the next one, so that is fetched meanwhile, into the
// second cache, because it may be larger than the first.
GLASS_INLINE void prefetch_next(const Panels& panels, int p, Size place) {
    constexpr int READ = 0, SECOND_CACHE = 2;
    __builtin_prefetch(panels.next + static_cast<Size>(p) * panels.step + place, READ, SECOND_CACHE);
}

template <int BITS>
struct Tile;

inline std::int32_t four_at(const std::int8_t* x) {
    std::int32_t four;
    std::memcpy(&four, x, sizeof four);
    return four;
}

}  // namespace glass

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include "dots_avx512.hpp"
#elif defined(__AVXVNNI__)
#include "dots_avxvnni.hpp"
#elif defined(__AVX2__)
#include "dots_avx2.hpp"
#elif defined(GLASS_NEON)
#include "dots_neon.hpp"
#else
#include "dots_plain.hpp"
#endif
