// Bare metal A32 and T32: timer interrupts while it computes, SVC, and a data abort that is handled.
// build bare-a15
// machine virt -cpu cortex-a15
// exit 0
#include <stdint.h>

enum { GICD = 0x08000000, GICC = 0x08010000, TIMER = 30 };
static volatile uint32_t *word(uint32_t address) { return (volatile uint32_t *)address; }
static volatile unsigned ticks, services, aborts;

static void timer(uint32_t ticks_to_go) {
    __asm__ volatile("mcr p15, 0, %0, c14, c2, 0\n mcr p15, 0, %1, c14, c2, 1\n isb"
                     : : "r"(ticks_to_go), "r"(1));
}

void on_irq(void) {
    uint32_t number = *word(GICC + 0xc);
    if ((number & 1023) == TIMER) {
        ticks++;
        timer(ticks < 6 ? 2000 : 1 << 30);
    }
    *word(GICC + 0x10) = number;
}
void on_svc(int number) { services += number; }
void on_abort(void) { aborts++; }

__attribute__((noinline, target("arm"))) static unsigned load(uint32_t address) {
    register uint32_t r0 __asm__("r0") = address;
    __asm__ volatile("ldr r0, [r0]" : "+r"(r0));
    return r0;
}
__attribute__((noinline, target("arm"))) static unsigned a32(unsigned x) {
    register unsigned r0 __asm__("r0") = 2;
    __asm__ volatile("svc #2" : "+r"(r0) : : "memory", "lr", "cc");
    return x * 5 + 1;
}
__attribute__((noinline, target("thumb"))) static unsigned t32(unsigned x) {
    register unsigned r0 __asm__("r0") = 1;
    __asm__ volatile("svc #1" : "+r"(r0) : : "memory", "lr", "cc");
    return x > 1000 ? x - 1000 : x + 3;
}

__attribute__((target("thumb"))) int run(void) {
    *word(GICD) = 1;
    *word(GICD + 0x100) = 1u << TIMER;
    *word(GICC + 4) = 0xff;
    *word(GICC) = 1;
    timer(2000);
    __asm__ volatile("cpsie i");
    unsigned x = 1;
    for (int i = 0; i < 5; i++)
        x = a32(t32(x));
    // Beyond the memory of the machine.
    unsigned address = load(0xf0000000) ^ load(0xf0000100);
    while (ticks < 6)
        x = x * 1664525 + 1013904223;
    __asm__ volatile("cpsid i");
    return address == 0x100 && services == 15 && aborts == 2 && ticks == 6 ? 0 : 1;
}
