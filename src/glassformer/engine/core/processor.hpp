// Which instruction sets this machine has, by the names that they are built under.
#pragma once
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace glass {

#if defined(__x86_64__)
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }  // those have f16c too

inline bool has_avxvnni() {
    constexpr unsigned AVX_VNNI = 1u << 4;
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}

inline bool has_avx512() {
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

// Some virtual machines announce AMX and describe no tiles. Linux lets a process have tiles when it asks for them.
inline bool has_amx() {
#if defined(__linux__)
    constexpr unsigned TILE = 1u << 24, INT8 = 1u << 25, BYTES = 8192, OF_A_TILE = 1024, COUNT = 8;
    constexpr long ASK = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (TILE | INT8)) != (TILE | INT8)) return false;
    if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d)) return false;
    if ((a & 0xffff) < BYTES || a >> 16 != OF_A_TILE || b >> 16 != COUNT) return false;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

#if defined(__aarch64__)
inline bool has_dotprod() {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
    int has = 0;
    std::size_t size = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has;
#else
    return false;
#endif
}
#endif

// A process that uses AMX must have asked first.
inline bool has(const char* way) {
    if (!std::strcmp(way, "plain")) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!std::strcmp(way, "avx2")) return has_avx2();
    if (!std::strcmp(way, "avxvnni")) return has_avxvnni();
    if (!std::strcmp(way, "avx512")) return has_avx512();
    if (!std::strcmp(way, "amx")) return has_avx512() && has_amx();
#elif defined(__aarch64__)
    if (!std::strcmp(way, "neon")) return true;
    if (!std::strcmp(way, "dotprod")) return has_dotprod();
#endif
    return false;
}

}  // namespace glass
