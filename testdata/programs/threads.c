// Threads of a user program: four, each counts under a spin lock, then the first one joins them.
// build a64 a32 t32
// exit 40
#include "linux.h"

enum { THREADS = 4, ROUNDS = 10, STACK = 4096 };
// VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, PARENT_SETTID, CHILD_CLEARTID
enum { FLAGS = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x100000 | 0x200000 };
static char stacks[THREADS][STACK] __attribute__((aligned(16)));
static volatile int alive[THREADS], lock, total;

__attribute__((used, noreturn)) static void work(void) {
    for (int i = 0; i < ROUNDS; i++) {
        while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
            ;
        total++;
        __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    }
    for (;;)
        call(SYS_exit, 0, 0, 0);
}

// The new thread begins in work, on its own stack.
__attribute__((noinline)) static long spawn(void *stack, volatile int *alive) {
#if defined __aarch64__
    register long x8 __asm__("x8") = 220, x0 __asm__("x0") = FLAGS;
    register void *x1 __asm__("x1") = stack;
    register volatile int *x2 __asm__("x2") = alive, *x4 __asm__("x4") = alive;
    register long x3 __asm__("x3") = 0;
    __asm__ volatile("svc #0\n cbnz x0, 1f\n bl work\n1:"
                     : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory", "x30");
    return x0;
#else
    register long r0 __asm__("r0") = FLAGS, r3 __asm__("r3") = 0;
    register void *r1 __asm__("r1") = stack;
    register volatile int *r2 __asm__("r2") = alive, *r4 __asm__("r4") = alive;
    __asm__ volatile("push {r7}\n mov r7, #120\n svc #0\n cmp r0, #0\n bne 1f\n bl work\n1: pop {r7}"
                     : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory", "lr", "cc");
    return r0;
#endif
}

int run(void) {
    for (int i = 0; i < THREADS; i++) {
        alive[i] = 1;
        spawn(stacks[i] + STACK, &alive[i]);
    }
    for (int i = 0; i < THREADS; i++)
        for (int id; (id = alive[i]) != 0;)
            call(SYS_futex, (long)&alive[i], 0, id);
    return total;
}
