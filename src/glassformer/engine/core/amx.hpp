// Many rows by a matrix, with AMX: an instruction multiplies a tile of 16 rows by 64 columns with a tile of 64 columns by 16 outputs, and
// adds to 16 × 16 sums in 32 bits, exactly. The panels of a matrix are such tiles already, one behind another.
//
// Four bits: a weight q · m has at most eleven bits. It is split into 16 · high + low, two tiles of eight bits, whose sums are put
// together in the end. So groups need no sums of their own, and the result is the same integer.
#pragma once
#include "dots.hpp"

#if defined(GLASS_AMX)  // compilers have no common name of their own for it

namespace glass {

constexpr int DEEP = 64;      // columns of a tile
constexpr int BLOCK = 1024;   // columns of four bits that are split at once: the tiles stay in the first cache
constexpr int AT_ONCE = 128;  // rows whose sums are kept meanwhile
constexpr Size TILE = 1024;   // bytes

// Fewer rows than that wait for memory, and are as fast without tiles.
template <int BITS>
constexpr int LEAST_ROWS = BITS == 8 ? 5 : 24;

template <int BITS>
inline bool fits_tiles(const GlassMatrix& matrix, int rows) {
    return rows >= LEAST_ROWS<BITS> && matrix.columns % DEEP == 0;
}

// All eight tiles, whole: 0 to 3 are sums, 4 and 5 rows of activations, 6 and 7 weights. A thread that holds tiles costs the system
// a large copy whenever it gives way, so they are released.
class Tiles {
  public:
    Tiles() {
        struct alignas(64) {
            std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
            std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } sizes;
        asm volatile("" ::"r"(&sizes) : "memory");  // GCC believes that a part of it is read, and would leave out the rest
        _tile_loadconfig(&sizes);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;
};

inline void zero_sums() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// A or 1 tiles of rows by W or 1 tiles of weights, added to the sums: tile 2 · a + w is that of rows a and weights w.
template <int A, int W>
GLASS_INLINE void add_tiles(const std::int8_t* rows, Size step, const std::int8_t* weights, Size next, int columns) {
    constexpr int BYTES = 64;  // of a row of a tile
    for (int k = 0; k < columns; k += DEEP, weights += TILE) {
        _tile_loadd(4, rows + k, step);
        _tile_loadd(6, weights, BYTES);
        _tile_dpbssd(0, 4, 6);
        if constexpr (W == 2) {
            _tile_loadd(7, weights + next, BYTES);
            _tile_dpbssd(1, 4, 7);
        }
        if constexpr (A == 2) {
            _tile_loadd(5, rows + 16 * step + k, step);
            _tile_dpbssd(2, 5, 6);
            if constexpr (W == 2) _tile_dpbssd(3, 5, 7);
        }
    }
}

using Sums = Ints[2][2][LANES];  // of two tiles of rows by two tiles of weights

GLASS_INLINE void load_sums(const Sums& from) {
    _tile_loadd(0, from[0][0], sizeof(Ints));
    _tile_loadd(1, from[0][1], sizeof(Ints));
    _tile_loadd(2, from[1][0], sizeof(Ints));
    _tile_loadd(3, from[1][1], sizeof(Ints));
}

GLASS_INLINE void store_sums(Sums& to) {
    _tile_stored(0, to[0][0], sizeof(Ints));
    _tile_stored(1, to[0][1], sizeof(Ints));
    _tile_stored(2, to[1][0], sizeof(Ints));
    _tile_stored(3, to[1][1], sizeof(Ints));
}

// W panels of eight bits by all rows; give(panel, row, count, sums) receives the sums of `count` rows.
template <int W, typename Give>
inline void tiles8(const GlassMatrix& matrix, const Rows& x, int count, int panel, const Give& give) {
    const Panels panels(matrix, panel);
    const Size step = row_step(matrix.columns);
    alignas(64) Sums sums;
    for (int row = 0; row < count; row += 2 * LANES) {
        const std::int8_t* numbers = x.row(row, matrix.columns);
        const int left = count - row;
        zero_sums();
        if (left > LANES)
            add_tiles<2, W>(numbers, step, panels.weights, panels.step, matrix.columns);
        else
            add_tiles<1, W>(numbers, step, panels.weights, panels.step, matrix.columns);
        store_sums(sums);
        for (int a = 0; a < 2 && a * LANES < left; a++)
            for (int w = 0; w < W; w++) give(panel + w, row + a * LANES, std::min(LANES, left - a * LANES), sums[a][w]);
    }
}

// Eight columns of a panel of four bits times their multipliers, as 16 · high + low: low is -8 to 7, high is -63 to 56.
GLASS_INLINE void split_eight(__m512i both, __m512i by, std::int8_t* high, std::int8_t* low) {
    const __m512i nibble = _mm512_set1_epi8(15), eight = _mm512_set1_epi16(8);
    unrolled<2>([&](auto half) {
        const __m512i stored = _mm512_and_si512(half ? _mm512_srli_epi16(both, 4) : both, nibble);
        const __m512i columns[] = {_mm512_and_si512(stored, _mm512_set1_epi16(15)), _mm512_srli_epi16(stored, 8)};  // even and odd
        __m512i highs[2], lows[2];
        unrolled<2>([&](auto odd) {
            const __m512i weight = _mm512_mullo_epi16(_mm512_sub_epi16(columns[odd], eight), by);
            highs[odd] = _mm512_srai_epi16(_mm512_add_epi16(weight, eight), 4);
            lows[odd] = _mm512_sub_epi16(weight, _mm512_slli_epi16(highs[odd], 4));
        });
        constexpr __mmask64 ODD = 0xaaaaaaaaaaaaaaaa;
        _mm512_storeu_si512(high + half * 64, _mm512_mask_blend_epi8(ODD, highs[0], _mm512_slli_epi16(highs[1], 8)));
        _mm512_storeu_si512(low + half * 64, _mm512_mask_blend_epi8(ODD, lows[0], _mm512_slli_epi16(lows[1], 8)));
    });
}

struct Split {  // some columns of a panel, as tiles
    alignas(64) std::int8_t high[BLOCK * LANES], low[BLOCK * LANES];

    void take(const Panels& panels, int first, int columns) {
        const std::int8_t* weights = panels.weights + offset(first / EIGHT, FOUR * LANES);
        const std::int8_t* multipliers = panels.multipliers + offset(first / GROUP, LANES);
        for (int k = 0; k < columns; k += GROUP, multipliers += LANES) {
            const __m512i by = _mm512_maskz_cvtepi8_epi32(ALL, _mm_loadu_si128(reinterpret_cast<const __m128i*>(multipliers)));
            const __m512i twice = _mm512_or_si512(by, _mm512_maskz_slli_epi32(ALL, by, 16));
            for (int n = k; n < k + GROUP; n += EIGHT, weights += FOUR * LANES)
                split_eight(_mm512_loadu_si512(weights), twice, high + offset(n, LANES), low + offset(n, LANES));
        }
        asm volatile("" ::: "memory");  // before tiles are loaded, which GCC does not take for reading
    }
};

// A panel of four bits by all rows.
template <typename Give>
inline void tiles4(const GlassMatrix& matrix, const Rows& x, int count, int panel, const Give& give) {
    const Panels panels(matrix, panel);
    const Size step = row_step(matrix.columns);
    Split split;
    alignas(64) Sums sums[AT_ONCE / (2 * LANES)];
    for (int from = 0; from < count; from += AT_ONCE) {
        const int rows = std::min(AT_ONCE, count - from);
        for (int k = 0; k < matrix.columns; k += BLOCK) {
            const int columns = std::min(BLOCK, matrix.columns - k);
            split.take(panels, k, columns);
            for (int row = 0; row < rows; row += 2 * LANES) {
                Sums& mine = sums[row / (2 * LANES)];
                const std::int8_t* numbers = x.row(from + row, matrix.columns) + k;
                if (k == 0)
                    zero_sums();
                else
                    load_sums(mine);
                if (rows - row > LANES)
                    add_tiles<2, 2>(numbers, step, split.high, sizeof split.high, columns);
                else
                    add_tiles<1, 2>(numbers, step, split.high, sizeof split.high, columns);
                store_sums(mine);
            }
        }
        for (int row = 0; row < rows; row += LANES) {
            auto& [high, low] = sums[row / (2 * LANES)][row / LANES % 2];
            for (int t = 0; t < LANES; t++) high[t] = (high[t] << 4) + low[t];
            give(panel, from + row, std::min(LANES, rows - row), high);
        }
    }
}

template <int BITS, typename Give>
void by_tiles(const GlassMatrix& matrix, const Rows& x, int count, int panel, int end, const Give& give) {
    const Tiles tiles;
    if constexpr (BITS == 4) {
        for (; panel < end; panel++) tiles4(matrix, x, count, panel, give);
    } else {
        for (; panel + 2 <= end; panel += 2) tiles8<2>(matrix, x, count, panel, give);
        if (panel < end) tiles8<1>(matrix, x, count, panel, give);
    }
}

}  // namespace glass
#endif
