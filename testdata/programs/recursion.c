// Recursion: one function in itself, two in each other, and one whose depth varies.
// build a64 a32 t32
// exit 209
#include "linux.h"

__attribute__((noinline)) static unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static unsigned odd(unsigned n);
__attribute__((noinline)) static unsigned even(unsigned n) { return n == 0 ? 1 : odd(n - 1) ^ 2; }
__attribute__((noinline)) static unsigned odd(unsigned n) { return n == 0 ? 0 : even(n - 1) ^ 4; }

__attribute__((noinline)) static unsigned hanoi(unsigned discs, unsigned from, unsigned to) {
    if (discs == 0)
        return 0;
    unsigned other = 6 - from - to;
    return 3 * hanoi(discs - 1, from, other) + from + 5 * hanoi(discs - 1, other, to) + to;
}

int run(void) { return (ackermann(2, 12) + even(37) + hanoi(9, 1, 3)) & 0xff; }
