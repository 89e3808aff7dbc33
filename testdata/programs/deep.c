// Chains of calls deeper than any return stack, and returns that do not go to the last call.
// build a64 a32 t32
// exit 86
#include "linux.h"

static volatile unsigned salt = 5;
#define LINK(name, next) \
    __attribute__((noinline)) static unsigned name(unsigned x) { \
        unsigned y = next(x + 1); \
        return (x & 1 ? next(y) : y) * 3 + salt; \
    }
__attribute__((noinline)) static unsigned leaf(unsigned x) { return x ^ salt; }
LINK(f1, leaf) LINK(f2, f1) LINK(f3, f2) LINK(f4, f3) LINK(f5, f4) LINK(f6, f5) LINK(f7, f6)
LINK(f8, f7) LINK(f9, f8) LINK(f10, f9)

// A chain of 40 frames by itself.
__attribute__((noinline)) static unsigned down(unsigned n) { return n ? down(n - 1) + salt : salt; }

// Leaves several frames at once.
static void *place[5];
__attribute__((noinline, noreturn)) static void out(unsigned n) {
    if (n == 0)
        __builtin_longjmp(place, 1);
    out(n - 1);
    for (;;)
        salt++;
}

int run(void) {
    unsigned x = f10(7) + down(40);
    for (volatile unsigned round = 0; round < 5; round++)
        if (__builtin_setjmp(place) == 0)
            out(round);
        else
            salt += 3;
    x += f5(salt);
    return (x ^ x >> 8 ^ x >> 16 ^ x >> 24) & 0xff;
}
