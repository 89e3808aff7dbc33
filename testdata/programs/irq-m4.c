// Bare metal M-profile: SysTick interrupts while it computes, SVC, PendSV that SysTick asks for, and
// a fault that is handled.
// build bare-m4
// machine mps2-an386
// exit 0
#include <stdint.h>

static volatile uint32_t *word(uint32_t address) { return (volatile uint32_t *)address; }
static volatile unsigned ticks, services, switches, faults;

int run(void);
void reset(void);
void halt_here(int status);
extern char stack_end[];
__asm__(".bss\n .balign 8\n .space 2048\n .global stack_end\nstack_end:\n .text\n");

__attribute__((noinline)) void halt_here(int status) {
    uint32_t block[2] = {0x20026, status};
    register uint32_t r0 __asm__("r0") = 0x20;
    register uint32_t *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt #0xab" : "+r"(r0) : "r"(r1) : "memory");
    for (;;)
        ;
}
void reset(void) { halt_here(run()); }
static void hang(void) { for (;;); }
static void on_tick(void) {
    ticks++;
    *word(0xe000ed04) = 1 << 28; // PendSV
    if (ticks == 6)
        *word(0xe000e010) = 0;
}
static void on_pend(void) { switches += ticks; }
static __attribute__((used)) void service(uint32_t *frame) {
    services += ((const uint8_t *)frame[6])[-2];
    frame[0] = services;
}
static __attribute__((naked)) void on_svc(void) {
    __asm__("mov r0, sp\n push {r4, lr}\n bl service\n pop {r4, pc}");
}
static __attribute__((used)) void fault(uint32_t *frame) {
    faults++;
    *word(0xe000ed28) = *word(0xe000ed28);
    frame[6] += 2; // behind the load
    frame[0] = 17;
}
static __attribute__((naked)) void on_fault(void) {
    __asm__("mov r0, sp\n push {r4, lr}\n bl fault\n pop {r4, pc}");
}

__attribute__((section(".text.vectors"), used)) static void *const vectors[16] = {
    stack_end, reset, hang, hang, hang, on_fault, hang, 0, 0, 0, 0, on_svc, hang, 0, on_pend, on_tick,
};

__attribute__((noinline)) static unsigned load(uint32_t address) {
    register uint32_t r0 __asm__("r0") = address;
    __asm__ volatile("ldr r0, [r0]" : "+r"(r0));
    return r0;
}
__attribute__((noinline)) static unsigned serve(unsigned x) {
    register unsigned r0 __asm__("r0") = x;
    __asm__ volatile("svc #5" : "+r"(r0) : : "memory");
    return r0 + x;
}

int run(void) {
    *word(0xe000ed24) = 1 << 17; // bus faults
    *word(0xe000e014) = 9999;
    *word(0xe000e018) = 0;
    *word(0xe000e010) = 7;
    unsigned sum = 0, x = 1;
    for (int i = 0; i < 4; i++)
        sum += serve(i);
    sum += load(0x90000000);
    while (ticks < 6) {
        x = x * 1664525 + 1013904223;
        if (x >> 31)
            sum ^= 0;
    }
    return sum == 50 + 6 + 17 && services == 20 && faults == 1 && ticks == 6 && switches == 21 ? 0 : 1;
}
