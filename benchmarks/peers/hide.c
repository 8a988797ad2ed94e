// Preloaded into a peer whose `cpuid` instructions hide.py has replaced by `ud2`: answers each as a processor without AVX-512 would.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

static const unsigned AVX512_EBX = BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);
static const unsigned AVX512_ECX = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14);
static const unsigned AVX512_EDX = BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25);  // with AMX
static const unsigned LATER_EAX = BIT(4) | BIT(5) | BIT(21) | BIT(23);  // products of bytes and BF16 in AVX, which came after AVX-512
static const unsigned LATER_EDX = BIT(4) | BIT(5) | BIT(10);

static void answer(int signal, siginfo_t* info, void* context) {
    greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
    const uint8_t* at = (const uint8_t*)registers[REG_RIP];
    (void)info;
    if (at[0] != 0x0f || at[1] != 0x0b) {  // no `ud2`: a fault of the peer's own
        struct sigaction usual = {.sa_handler = SIG_DFL};
        sigaction(signal, &usual, 0);
        return;
    }
    const unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX];
    unsigned eax, ebx, ecx, edx;
    __cpuid_count(leaf, part, eax, ebx, ecx, edx);
    if (leaf == 7 && part == 0) ebx &= ~AVX512_EBX, ecx &= ~AVX512_ECX, edx &= ~AVX512_EDX;
    if (leaf == 7 && part == 1) eax &= ~LATER_EAX, edx &= ~LATER_EDX;
    registers[REG_RAX] = eax, registers[REG_RBX] = ebx, registers[REG_RCX] = ecx, registers[REG_RDX] = edx;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &action, 0);
}
