// Return addresses that are signed (PACIASP, AUTIASP, RETAA), landing pads (BTI), and calls and
// jumps through signed pointers (BLRAA, BRAAZ).
// build a64 -march=armv8.5-a -mbranch-protection=standard
// exit 0
#include "linux.h"

typedef unsigned step(unsigned);
__attribute__((noinline, target("branch-protection=pac-ret+leaf+b-key+bti")))
static unsigned half(unsigned x) { return x / 2 + 1; }
__attribute__((noinline, target("branch-protection=pac-ret+leaf+bti")))
static unsigned more(unsigned x) { return x * 3 + 1; }
static step *const volatile steps[] = {half, more};

__attribute__((noinline)) static unsigned signed_call(step *function, unsigned x) {
    register unsigned w0 __asm__("w0") = x;
    register step *pointer __asm__("x9") = function;
    register long modifier __asm__("x10") = 42;
    __asm__ volatile("pacia x9, x10\n blraa x9, x10"
                     : "+r"(w0), "+r"(pointer) : "r"(modifier)
                     : "x1", "x2", "x3", "x11", "x16", "x17", "x30", "cc", "memory");
    return w0;
}

__attribute__((noinline)) static unsigned signed_jump(unsigned x) {
    __asm__ volatile("adr x16, 1f\n paciza x16\n braaz x16\n add %w0, %w0, #9\n"
                     "1: bti j\n add %w0, %w0, #1" : "+r"(x) : : "x16");
    return x;
}

__attribute__((noinline)) static unsigned collatz(unsigned x) {
    unsigned length = 0;
    while (x != 1 && length < 150) {
        x = x & 1 ? signed_call(steps[1], x) : steps[0](x) - 1;
        length = signed_jump(length);
    }
    return length;
}

int run(void) { return collatz(27) == 111 ? 0 : 1; }
