// A crash whose cause lies thousands of instructions back: a name longer than its field.
// build a64
// signal 11
#include "linux.h"

struct sensor {
    char name[8];
    const int *curve;
    unsigned reading;
};
static const int linear[4] = {0, 25, 50, 75};
static struct sensor sensors[3] = {{"inlet", linear, 1}, {"outlet", linear, 2}, {"pump", linear, 3}};

__attribute__((noinline)) static void rename(struct sensor *sensor, const char *name) {
    char *to = sensor->name;
    while ((*to++ = *name++))
        continue;
}
// The readings change as if they were measured.
__attribute__((noinline)) static void sample(unsigned seed) {
    for (int i = 0; i < 3; i++) {
        seed = seed * 1103515245 + 12345;
        sensors[i].reading = (sensors[i].reading + (seed >> 16)) % 4;
    }
}
__attribute__((noinline)) static int degrees(const struct sensor *sensor) {
    return *(volatile const int *)&sensor->curve[sensor->reading];
}

int run(void) {
    int sum = 0;
    rename(&sensors[1], "manifold 2");
    for (unsigned round = 0; round < 400; round++)
        sample(round);
    for (int i = 0; i < 3; i++)
        sum += degrees(&sensors[i]);
    return sum;
}
