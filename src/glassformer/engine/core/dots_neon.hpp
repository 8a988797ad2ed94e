// The products of NEON, signed bytes by signed bytes, eight columns at a time.
//
// A register holds four columns of four rows of a panel. With the dot products of ARMv8.2, `sdot` adds four products to each of four
// sums of 32 bits, and takes the four numbers of an activation row from a part of a register: nothing is broadcast. Without them,
// `smull` makes eight products of 16 bits, `smlal` adds eight others to them, and `sadalp` adds neighbors to sums of 32 bits.
//
// A loop of sixteen columns would load less, but compilers then load weights so early that sums no longer fit in the 32 registers.
#pragma once
#include "dots.hpp"

namespace glass {

constexpr int QUARTERS = 4, QUARTER = FOUR * LANES / QUARTERS;  // registers that hold four columns of a panel; bytes of each

#if defined(__ARM_FEATURE_DOTPROD)
constexpr const char* WAY = "dotprod";

template <>
struct Tile<8> {
    static constexpr int PANELS = 1, ROWS = 5;  // 20 sums, five rows, and weights
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 4;
    static constexpr int AT_ONCE = 4;  // quarters of a panel, if there is more than one row
};

template <>
struct Tile<4> {
    static constexpr int PANELS = 1, ROWS = 5;  // 10 sums and 10 sums of a group
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 2;
    static constexpr int AT_ONCE = 2;
};

using Sums = int32x4_t;  // of four rows
using GroupSums = int32x4_t;

// Add the products of eight columns: weights of the first four and of the second four.
GLASS_INLINE Sums add_products(Sums sums, int8x16_t first, int8x16_t second, int8x8_t eight) {
    return vdotq_lane_s32(vdotq_lane_s32(sums, first, eight, 0), second, eight, 1);
}

GLASS_INLINE int32x4_t total(Sums sums) { return sums; }

// The sums of a group begin with its start.
GLASS_INLINE GroupSums begin_group(std::int32_t start) { return vdupq_n_s32(start); }

GLASS_INLINE int32x4_t end_group(GroupSums sums, std::int32_t) { return sums; }
#else
constexpr const char* WAY = "neon";

template <>
struct Tile<8> {
    static constexpr int PANELS = 1, ROWS = 3;  // 12 registers of sums, three rows, and their broadcasts
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 1;
    static constexpr int AT_ONCE = 2;
};

template <>
struct Tile<4> {
    static constexpr int PANELS = 1, ROWS = 3;  // 6 registers of sums and 12 of a group's
    static constexpr int ROWS_OF_MANY = ROWS;
    static constexpr int PANELS_ONE_ROW = 1;
    static constexpr int AT_ONCE = 2;
};

// Two products fit in 16 bits: activations are never -128, and weights might even be.
static_assert(2 * 128 * 127 <= 32767);

struct Sums {  // of two rows each; the two lanes of a row are added at the end
    int32x4_t low, high;
};

template <int I>
GLASS_INLINE int8x16_t broadcast_four(int8x8_t eight) {
    return vreinterpretq_s8_s32(vdupq_lane_s32(vreinterpret_s32_s8(eight), I));
}

// Add the products of eight columns: weights of the first four and of the second four.
GLASS_INLINE Sums add_products(Sums sums, int8x16_t first, int8x16_t second, int8x8_t eight) {
    const int8x16_t one = broadcast_four<0>(eight), two = broadcast_four<1>(eight);
    const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(first), vget_low_s8(one)), vget_low_s8(second), vget_low_s8(two));
    const int16x8_t high = vmlal_high_s8(vmull_high_s8(first, one), second, two);
    return {vpadalq_s16(sums.low, low), vpadalq_s16(sums.high, high)};
}

GLASS_INLINE int32x4_t total(Sums sums) { return vpaddq_s32(sums.low, sums.high); }

// Weights of four bits: a whole group stays in 16 bits, because a lane adds up one of four columns.
static_assert(GROUP / FOUR * 15 * 127 <= 32767);

struct GroupSums {  // of two rows each, four lanes a row
    int16x8_t low, high;
};

GLASS_INLINE GroupSums add_products(GroupSums sums, int8x16_t first, int8x16_t second, int8x8_t eight) {
    const int8x16_t one = broadcast_four<0>(eight), two = broadcast_four<1>(eight);
    const int16x8_t low = vmlal_s8(sums.low, vget_low_s8(first), vget_low_s8(one));
    const int16x8_t high = vmlal_high_s8(sums.high, first, one);
    return {vmlal_s8(low, vget_low_s8(second), vget_low_s8(two)), vmlal_high_s8(high, second, two)};
}

GLASS_INLINE GroupSums begin_group(std::int32_t) { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }

// The start is added here: in 16 bits there is no room for it.
GLASS_INLINE int32x4_t end_group(GroupSums sums, std::int32_t start) {
    return vaddq_s32(vpaddq_s32(vpaddlq_s16(sums.low), vpaddlq_s16(sums.high)), vdupq_n_s32(start));
}
#endif

inline void prepare8(Rows&, int, int) {}

// H quarters of a panel at a time.
template <int P, int T, int H, int FIRST>
inline void some_dots8(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    const std::int8_t* w = panels.weights + FIRST * QUARTER;
    const std::int8_t* numbers = x.row(row, panels.columns);
    const Size step = row_step(panels.columns);
    Sums sums[P][T][H];
    unrolled<P>([&](auto p) { unrolled<T>([&](auto t) { unrolled<H>([&](auto h) { sums[p][t][h] = Sums{}; }); }); });
    for (int k = 0; k < panels.columns; k += EIGHT, w += EIGHT * LANES, numbers += EIGHT) {
        int8x8_t eight[T];
        unrolled<T>([&](auto t) { eight[t] = vld1_s8(numbers + t * step); });
        unrolled<P>([&](auto p) {
            const std::int8_t* from = w + p * panels.step;
            if constexpr (FIRST == 0) __builtin_prefetch(from + AHEAD), __builtin_prefetch(from + AHEAD + FOUR * LANES);
            unrolled<H>([&](auto h) {
                const int8x16_t first = vld1q_s8(from + h * QUARTER), second = vld1q_s8(from + FOUR * LANES + h * QUARTER);
                unrolled<T>([&](auto t) { sums[p][t][h] = add_products(sums[p][t][h], first, second, eight[t]); });
            });
        });
    }
    unrolled<P>([&](auto p) {
        unrolled<T>([&](auto t) {
            unrolled<H>([&](auto h) { out[p][t].part[FIRST + h] = reinterpret_cast<IntPart>(total(sums[p][t][h])); });
        });
    });
}

template <int P, int T>
void dots8(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    constexpr int H = T == 1 ? QUARTERS : Tile<8>::AT_ONCE;
    unrolled<QUARTERS / H>([&](auto n) { some_dots8<P, T, H, decltype(n)::value * H>(panels, x, row, out); });
}

// Four bits. Weights are stored plus 8, so a group starts from -8 × the sum of its activations: less work than to subtract 8 from
// every weight.
inline void prepare4(Rows& x, int row, int columns) {
    const std::int8_t* numbers = x.row(row, columns);
    std::int32_t* starts = x.starts.data() + offset(row, groups_of(columns));
    for (int k = 0; k < columns; k += GROUP) {
        int sum = 0;
        for (int i = k; i < std::min(columns, k + GROUP); i++) sum += numbers[i];
        *starts++ = -8 * sum;
    }
}

GLASS_INLINE int32x4_t widened(const std::int8_t* four) {
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four_at(four))))));
}

template <int P, int T, int H, int FIRST>
inline void some_dots4(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    const std::int8_t *w = panels.weights + FIRST * QUARTER, *multipliers = panels.multipliers + FIRST * WIDE;
    const std::int8_t* numbers = x.row(row, panels.columns);
    const int groups = groups_of(panels.columns);
    const std::int32_t* starts = x.starts.data() + offset(row, groups);
    const Size step = row_step(panels.columns), starts_step = static_cast<Size>(groups);
    int32x4_t sums[P][T][H];
    unrolled<P>([&](auto p) { unrolled<T>([&](auto t) { unrolled<H>([&](auto h) { sums[p][t][h] = int32x4_t{}; }); }); });
    for (int k = 0; k < panels.columns; multipliers += LANES, starts++) {
        GroupSums part[P][T][H];
        unrolled<P>([&](auto p) {
            unrolled<T>([&](auto t) { unrolled<H>([&](auto h) { part[p][t][h] = begin_group(starts[t * starts_step]); }); });
        });
        for (const int end = std::min(panels.columns, k + GROUP); k < end; k += EIGHT, w += FOUR * LANES, numbers += EIGHT) {
            int8x8_t eight[T];
            unrolled<T>([&](auto t) { eight[t] = vld1_s8(numbers + t * step); });
            unrolled<P>([&](auto p) {
                const std::int8_t* from = w + p * panels.step;
                if constexpr (FIRST == 0) __builtin_prefetch(from + AHEAD);
                unrolled<H>([&](auto h) {
                    const uint8x16_t both = vreinterpretq_u8_s8(vld1q_s8(from + h * QUARTER));
                    const int8x16_t first = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
                    const int8x16_t second = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
                    unrolled<T>([&](auto t) { part[p][t][h] = add_products(part[p][t][h], first, second, eight[t]); });
                });
            });
        }
        unrolled<P>([&](auto p) {
            unrolled<H>([&](auto h) {
                const int32x4_t by = widened(multipliers + p * panels.multiplier_step + h * WIDE);
                unrolled<T>([&](auto t) {
                    sums[p][t][h] = vmlaq_s32(sums[p][t][h], end_group(part[p][t][h], starts[t * starts_step]), by);
                });
            });
        });
    }
    unrolled<P>([&](auto p) {
        unrolled<T>([&](auto t) {
            unrolled<H>([&](auto h) { out[p][t].part[FIRST + h] = reinterpret_cast<IntPart>(sums[p][t][h]); });
        });
    });
}

template <int P, int T>
void dots4(const Panels& panels, const Rows& x, int row, Ints (&out)[P][T]) {
    constexpr int H = T == 1 ? QUARTERS : Tile<4>::AT_ONCE;
    unrolled<QUARTERS / H>([&](auto n) { some_dots4<P, T, H, decltype(n)::value * H>(panels, x, row, out); });
}

}  // namespace glass
