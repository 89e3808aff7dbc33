// Bare metal A64 on two cores: both count under a spin lock, then core 0 adds up.
// build bare-a64
// machine virt -cpu cortex-a57 -smp 2
// exit 0
#include <stdint.h>

enum { ROUNDS = 60 };
static volatile unsigned lock, total, done, order;
void start_other(void);
struct saved;
void exception(int kind, struct saved *saved) { (void)kind, (void)saved; for (;;); }

static void take(void) {
    unsigned taken, failed;
    __asm__ volatile("1: ldaxr %w0, [%2]\n cbnz %w0, 1b\n stxr %w1, %w3, [%2]\n cbnz %w1, 1b"
                     : "=&r"(taken), "=&r"(failed) : "r"(&lock), "r"(1) : "memory");
}
static void give(void) { __asm__ volatile("stlr wzr, [%0]" : : "r"(&lock) : "memory"); }

__attribute__((noinline)) static void count(unsigned core) {
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

int run(void) {
    // PSCI CPU_ON of core 1; `virt` takes HVC.
    register uint64_t x0 __asm__("x0") = 0xc4000003, x1 __asm__("x1") = 1;
    register uint64_t x2 __asm__("x2") = (uint64_t)start_other, x3 __asm__("x3") = 1;
    __asm__ volatile("hvc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3) : "memory");
    count(0);
    while (!done)
        ;
    return total == 3 * ROUNDS ? 0 : 1;
}
