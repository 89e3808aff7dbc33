// A crash: writes through a null pointer deep in calls.
// build a64 a32 t32
// signal 11
#include "linux.h"

struct node {
    struct node *next;
    int value;
};
static struct node nodes[4] = {{nodes + 1, 1}, {nodes + 2, 2}, {nodes + 3, 3}, {0, 4}};

__attribute__((noinline)) static void set(struct node *node, int value) {
    *(volatile int *)&node->value = value;
}
__attribute__((noinline)) static int walk(struct node *node, int sum) {
    sum += node->value;
    if (sum < 0)
        return sum;
    set(node->next, sum);
    return walk(node->next, sum) + 1;
}
__attribute__((noinline)) static int total(int begin) { return walk(nodes, begin) * 2; }

int run(void) { return total(5); }
