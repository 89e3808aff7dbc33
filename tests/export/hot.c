// A loop with rare calls in its path, for a compiler that learns from a profile.
#include "linux.h"

static volatile unsigned sink;

#define RARE(name) \
    __attribute__((noinline)) static unsigned name(unsigned sum, unsigned i) { \
        sink = i; \
        return sum * 33 + i; \
    }
RARE(first)
RARE(second)
RARE(third)
RARE(fourth)

__attribute__((noinline)) static unsigned work(unsigned rounds) {
    unsigned sum = 1;
    for (unsigned i = 1; i <= rounds; i++) {
        unsigned mixed = i * 2654435761u;
        if (mixed >> 24 == 1)
            sum = first(sum, i);
        sum ^= mixed;
        if (mixed >> 24 == 2)
            sum = second(sum, i);
        sum += i;
        if (mixed >> 24 == 3)
            sum = third(sum, i);
        sum ^= mixed >> 3;
        if (mixed >> 24 == 4)
            sum = fourth(sum, i);
    }
    return sum;
}

int run(void) { return (work(20000) & 0x7f) == 0x80; }
