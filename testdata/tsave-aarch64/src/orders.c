/* A loop with something to collect: no library, for Linux on AArch64. */
struct order {
    long number;
    int pieces;
    short price;
};

static volatile long total;
static struct order orders[] = {{7, 3, 250}, {8, 1, -40}, {9, 12, 99}, {11, 5, 1000}};

__attribute__((noinline)) static long sum(const struct order *order, long before)
{
    return before + (long)order->pieces * order->price;
}

void _start(void)
{
    for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++)
        total = sum(&orders[i], total);
    register long status __asm__("x0") = 0;
    register long call __asm__("x8") = 93; /* exit */
    __asm__ volatile("finished: nop\nleave: svc 0" : : "r"(status), "r"(call));
    __builtin_unreachable();
}
