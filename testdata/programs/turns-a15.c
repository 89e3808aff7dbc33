// Bare metal A32 and T32 on two cores that take turns: each adds to a sum, then waits for the other.
// build bare-a15
// machine virt -cpu cortex-a15 -smp 2
// exit 0
#include <stdint.h>

enum { TURNS = 100 };
static volatile unsigned turn, sum;
void start_other(void);
void on_irq(void) {}
void on_svc(int number) { (void)number; }
void on_abort(void) {}

__attribute__((noinline, target("thumb"))) static void add(unsigned core, unsigned i) {
    sum = sum * 3 + core + i;
}

__attribute__((noinline, target("arm"))) static void take_turns(unsigned core) {
    for (unsigned i = 0; i < TURNS; i++) {
        // Waiting gives the other core its time.
        while (turn % 2 != core)
            __asm__ volatile("wfe" : : : "memory");
        add(core, i);
        __asm__ volatile("dmb" : : : "memory");
        turn++;
        __asm__ volatile("dsb\n sev" : : : "memory");
    }
}

void run_other(int core) { take_turns(core); }

__attribute__((target("arm"))) int run(void) {
    // PSCI CPU_ON of core 1; `virt` takes HVC.
    register uint32_t r0 __asm__("r0") = 0x84000003, r1 __asm__("r1") = 1;
    register uint32_t r2 __asm__("r2") = (uint32_t)start_other, r3 __asm__("r3") = 1;
    __asm__ volatile(".arch_extension virt\n hvc #0" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3) : "memory");
    take_turns(0);
    while (turn != 2 * TURNS)
        __asm__ volatile("wfe" : : : "memory");
    return sum != 0 ? 0 : 1;
}
