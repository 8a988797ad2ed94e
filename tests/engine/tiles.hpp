// The tiles of AMX in plain C++, for processors without them. Included before the core, they take the place of the compiler's.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace emulated {

struct Tile {
    std::uint8_t bytes[16][64];
};

struct Sizes {
    std::uint8_t palette, start_row, reserved[14];
    std::uint16_t bytes[16];
    std::uint8_t rows[16];
};

inline thread_local Tile tiles[8];
inline thread_local bool ready = false;

// The processor faults where this ends the program.
inline void must(bool holds) {
    if (!holds) std::abort();
}

inline void load_sizes(const void* from) {
    Sizes sizes;
    std::memcpy(&sizes, from, sizeof sizes);
    must(sizes.palette == 1 && sizes.start_row == 0);
    for (int tile = 0; tile < 8; tile++) must(sizes.bytes[tile] == 64 && sizes.rows[tile] == 16);  // the core uses whole tiles alone
    std::memset(tiles, 0, sizeof tiles);
    ready = true;
}

inline void release() { ready = false; }

inline void zero(int tile) {
    must(ready);
    tiles[tile] = {};
}

inline void load(int tile, const void* from, std::size_t step) {
    must(ready);
    for (std::size_t row = 0; row < 16; row++) std::memcpy(tiles[tile].bytes[row], static_cast<const char*>(from) + row * step, 64);
}

inline void store(int tile, void* to, std::size_t step) {
    must(ready);
    for (std::size_t row = 0; row < 16; row++) std::memcpy(static_cast<char*>(to) + row * step, tiles[tile].bytes[row], 64);
}

// Sum (m, n) gains a row m of `left` times a column n of `right`, whose rows hold four columns of it side by side.
inline void add_products(int sum, int left, int right) {
    must(ready && sum != left && sum != right && left != right);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            std::int32_t value;
            std::memcpy(&value, &tiles[sum].bytes[m][4 * n], sizeof value);
            for (int k = 0; k < 64; k++)
                value += static_cast<std::int8_t>(tiles[left].bytes[m][k]) * static_cast<std::int8_t>(tiles[right].bytes[k / 4][4 * n + k % 4]);
            std::memcpy(&tiles[sum].bytes[m][4 * n], &value, sizeof value);
        }
}

}  // namespace emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#define _tile_loadconfig emulated::load_sizes
#define _tile_release emulated::release
#define _tile_zero emulated::zero
#define _tile_loadd emulated::load
#define _tile_stored emulated::store
#define _tile_dpbssd emulated::add_products
#define GLASS_AMX
