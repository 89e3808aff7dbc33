// Bare metal T32 on two cores: both count under a spin lock, then core 0 adds up.
// build bare-a15
// machine virt -cpu cortex-a15 -smp 2
// exit 0
#include <stdint.h>

enum { ROUNDS = 60 };
static volatile unsigned lock, total, done, order;
void start_other(void);
void on_irq(void) {}
void on_svc(int number) { (void)number; }
void on_abort(void) {}

static void take(void) {
    unsigned taken, failed;
    __asm__ volatile("1: ldrex %0, [%2]\n cmp %0, #0\n bne 1b\n strex %1, %3, [%2]\n cmp %1, #0\n bne 1b\n dmb"
                     : "=&r"(taken), "=&r"(failed) : "r"(&lock), "r"(1) : "memory", "cc");
}
static void give(void) { __asm__ volatile("dmb\n str %1, [%0]" : : "r"(&lock), "r"(0) : "memory"); }

__attribute__((noinline, target("thumb"))) static void count(unsigned core) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        take();
        total += core + 1;
        order = order * 2 + core;
        give();
    }
}

void run_other(int core) {
    count(core);
    take();
    done++;
    give();
}

__attribute__((target("arm"))) int run(void) {
    // PSCI CPU_ON of core 1; `virt` takes HVC.
    register uint32_t r0 __asm__("r0") = 0x84000003, r1 __asm__("r1") = 1;
    register uint32_t r2 __asm__("r2") = (uint32_t)start_other, r3 __asm__("r3") = 1;
    __asm__ volatile(".arch_extension virt\n hvc #0" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3) : "memory");
    count(0);
    while (!done)
        ;
    return total == 3 * ROUNDS ? 0 : 1;
}
