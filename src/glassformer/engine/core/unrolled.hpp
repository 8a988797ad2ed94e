// Loops that are written out by the compiler's front end: f(0), f(1), … with constants. An array whose indices are all constants
// lives in registers; after a loop that the optimizer unrolls it may stay in memory.
#pragma once
#include <utility>

namespace glass {

template <typename F, int... I>
inline __attribute__((always_inline)) void call_each(std::integer_sequence<int, I...>, const F& f) {
    (f(std::integral_constant<int, I>()), ...);
}

template <int N, typename F>
inline __attribute__((always_inline)) void unrolled(const F& f) {
    call_each(std::make_integer_sequence<int, N>(), f);
}

}  // namespace glass
