// Linux system calls without a C library, and the entry of a program: `int run(void)` gives its
// exit status.
#pragma once
#include <stdint.h>

#if defined __aarch64__
enum { SYS_exit_group = 94, SYS_futex = 98, SYS_kill = 129,
       SYS_rt_sigaction = 134, SYS_getpid = 172 };
#define ENTRY "mov x29, #0\n mov x30, #0\n bl begin\n"
__attribute__((always_inline)) static inline long call(long number, long a, long b, long c, long d) {
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("mov x8, %4\n svc #0"
                     : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "i"(number) : "x8", "memory");
    return x0;
}
#else
enum { SYS_getpid = 20, SYS_kill = 37, SYS_rt_sigaction = 174,
       SYS_futex = 240, SYS_exit_group = 248 };
#define ENTRY "mov fp, #0\n mov lr, #0\n bl begin\n"
// r7 is T32's frame pointer: kept by hand.
__attribute__((always_inline)) static inline long call(long number, long a, long b, long c, long d) {
    register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
    register long r3 __asm__("r3") = d;
    __asm__ volatile("push {r7}\n mov r7, %4\n svc #0\n pop {r7}"
                     : "+r"(r0) : "r"(r1), "r"(r2), "r"(r3), "i"(number) : "memory");
    return r0;
}
#endif

int run(void);

__attribute__((used, noreturn)) static void begin(void) {
    int status = run();
    for (;;)
        call(SYS_exit_group, status, 0, 0, 0);
}

#if defined __thumb__
__asm__(".thumb\n .syntax unified\n .thumb_func\n");
#endif
__asm__(".section .text.start, \"ax\"\n .global _start\n .type _start, %function\n"
        "_start:\n" ENTRY " .previous\n");
