// Indirect calls: a table of functions, objects with tables of methods, a call back.
// build a64 a32 t32
// exit 152
#include "linux.h"

typedef unsigned step(unsigned);
__attribute__((noinline)) static unsigned twice(unsigned x) { return 2 * x; }
__attribute__((noinline)) static unsigned plus(unsigned x) { return x + 77; }
__attribute__((noinline)) static unsigned turn(unsigned x) { return x << 5 | x >> 27; }
__attribute__((noinline)) static unsigned mix(unsigned x) { return x ^ x >> 7; }
static step *const volatile steps[] = {twice, plus, turn, mix};

struct shape;
struct methods {
    unsigned (*area)(const struct shape *);
    void (*grow)(struct shape *, unsigned);
};
struct shape {
    const struct methods *methods;
    unsigned a, b;
};
static unsigned box_area(const struct shape *s) { return s->a * s->b; }
static void box_grow(struct shape *s, unsigned by) { s->a += by, s->b += by; }
static unsigned rod_area(const struct shape *s) { return s->a; }
static void rod_grow(struct shape *s, unsigned by) { s->a += by * by; }
static const struct methods box = {box_area, box_grow}, rod = {rod_area, rod_grow};

__attribute__((noinline)) static unsigned each(struct shape *s, unsigned n, step *done) {
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) {
        s[i].methods->grow(&s[i], i);
        sum = done(sum + s[i].methods->area(&s[i]));
    }
    return sum;
}

int run(void) {
    struct shape shapes[] = {{&box, 2, 3}, {&rod, 9, 0}, {&box, 4, 4}, {&rod, 1, 0}, {&rod, 7, 0}};
    unsigned x = 1;
    for (unsigned i = 0; i < 300; i++)
        x = steps[(i * 7 + (x >> 3)) & 3](x);
    for (unsigned i = 0; i < 20; i++)
        x += each(shapes, 5, steps[i & 3]);
    return (x ^ x >> 8 ^ x >> 16 ^ x >> 24) & 0xff;
}
