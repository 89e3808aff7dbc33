// Threads of a user program: four, each counts under a spin lock, then waits; the first one waits
// until all are done, so that all five live when the program ends.
// build a64 a32 t32
// exit 40
#include "linux.h"

enum { THREADS = 4, ROUNDS = 10, STACK = 4096 };
// VM, FS, FILES, SIGHAND, THREAD, SYSVSEM
enum { FLAGS = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000, WAIT = 0, WAKE = 1 };
static char stacks[THREADS][STACK] __attribute__((aligned(16)));
static volatile int lock, total, done, never;

__attribute__((used, noreturn)) static void work(void) {
    for (int i = 0; i <= ROUNDS; i++) {
        while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
            ;
        if (i < ROUNDS)
            total++;
        else
            done++;
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    }
    call(SYS_futex, (long)&done, WAKE, 1, 0);
    for (;;)
        call(SYS_futex, (long)&never, WAIT, 0, 0);
}

// The new thread starts in work, on its own stack.
__attribute__((noinline)) static long spawn(void *stack) {
#if defined __aarch64__
    register long x0 __asm__("x0") = FLAGS;
    register void *x1 __asm__("x1") = stack;
    register long x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    __asm__ volatile("mov x8, #220\n svc #0\n cbnz x0, 1f\n bl work\n1:"
                     : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory", "x8", "x30");
    return x0;
#else
    register long r0 __asm__("r0") = FLAGS, r2 __asm__("r2") = 0, r3 __asm__("r3") = 0;
    register void *r1 __asm__("r1") = stack;
    register long r4 __asm__("r4") = 0;
    __asm__ volatile("push {r7}\n mov r7, #120\n svc #0\n cmp r0, #0\n bne 1f\n bl work\n1: pop {r7}"
                     : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory", "lr", "cc");
    return r0;
#endif
}

int run(void) {
    for (int i = 0; i < THREADS; i++)
        spawn(stacks[i] + STACK);
    for (int seen; (seen = done) < THREADS;)
        call(SYS_futex, (long)&done, WAIT, seen, 0);
    return total;
}
