// Bare metal A64 on two cores that take turns: each adds to a sum, then waits for the other.
// build bare-a64
// machine virt -cpu cortex-a57 -smp 2
// exit 0
#include <stdint.h>

enum { TURNS = 100 };
static volatile unsigned turn, sum;
void start_other(void);
struct saved;
void exception(int kind, struct saved *saved) { (void)kind, (void)saved; for (;;); }

__attribute__((noinline)) static void add(unsigned core, unsigned i) {
    sum = sum * 3 + core + i;
}

__attribute__((noinline)) static void take_turns(unsigned core) {
    for (unsigned i = 0; i < TURNS; i++) {
        // Waiting gives the other core its time.
        while (turn % 2 != core)
            __asm__ volatile("wfe" : : : "memory");
        add(core, i);
        __asm__ volatile("dmb ish" : : : "memory");
        turn++;
        __asm__ volatile("dsb ish\n sev" : : : "memory");
    }
}

void run_other(int core) { take_turns(core); }

int run(void) {
    // PSCI CPU_ON of core 1; `virt` takes HVC.
    register uint64_t x0 __asm__("x0") = 0xc4000003, x1 __asm__("x1") = 1;
    register uint64_t x2 __asm__("x2") = (uint64_t)start_other, x3 __asm__("x3") = 1;
    __asm__ volatile("hvc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3) : "memory");
    take_turns(0);
    while (turn != 2 * TURNS)
        __asm__ volatile("wfe" : : : "memory");
    return sum != 0 ? 0 : 1;
}
