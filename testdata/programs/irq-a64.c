// Bare metal A64: timer interrupts while it computes, SVC, a data abort that is handled, and a part
// at EL0 that comes back by SVC.
// build bare-a64
// machine virt -cpu cortex-a57
// exit 0
#include <stdint.h>

struct saved { uint64_t x[18], x18, x30, elr, spsr; };
enum { GICD = 0x08000000, GICC = 0x08010000, TIMER = 30 };
static volatile uint32_t *word(uint64_t address) { return (volatile uint32_t *)address; }
static volatile unsigned ticks, services, aborts, users;

void user_part(void);
void user_end(void);
// At EL0 with a call and a loop; ends with SVC 3.
__asm__(".text\n .global user_part\nuser_part: mov x19, #5\n1: bl 2f\n subs x19, x19, #1\n b.ne 1b\n"
        "svc #2\n svc #3\n b .\n2: add x20, x20, #1\n ret\n");

static void timer(uint64_t ticks_to_go) {
    __asm__ volatile("msr cntp_tval_el0, %0\n msr cntp_ctl_el0, %1\n isb"
                     : : "r"(ticks_to_go), "r"(1L));
}

__attribute__((noinline)) static void on_irq(void) {
    uint32_t number = *word(GICC + 0xc);
    if ((number & 1023) == TIMER) {
        ticks++;
        timer(ticks < 6 ? 2000 : 1 << 30);
    }
    *word(GICC + 0x10) = number;
}

static uint64_t after_user[2];

void exception(int kind, struct saved *saved) {
    if ((kind & 3) == 1) {
        on_irq();
        return;
    }
    uint64_t esr;
    __asm__ volatile("mrs %0, esr_el1" : "=r"(esr));
    switch (esr >> 26) {
    case 0x15:
        services += esr & 0xffff;
        if (kind == 8) {
            users++;
            if ((esr & 0xffff) == 3) {
                saved->elr = after_user[0];
                saved->spsr = after_user[1];
            }
        }
        break;
    case 0x25:
        aborts++;
        saved->elr += 4;
        saved->x[0] = 17;
        break;
    default:
        for (;;)
            ;
    }
}

__attribute__((noinline)) static uint64_t load(uint64_t address) {
    register uint64_t x0 __asm__("x0") = address;
    __asm__ volatile("ldr x0, [x0]" : "+r"(x0));
    return x0;
}

__attribute__((noinline)) static void enter_user(void) {
    uint64_t spsr = 0, daif;
    __asm__ volatile("mrs %0, daif" : "=r"(daif));
    after_user[1] = 5 | daif;
    __asm__ volatile("adr x9, 1f\n str x9, [%0]\n msr elr_el1, %1\n msr spsr_el1, %2\n eret\n1:"
                     : : "r"(after_user), "r"(user_part), "r"(spsr)
                     : "x9", "x19", "x20", "x30", "cc", "memory");
}

int run(void) {
    *word(GICD) = 1;
    *word(GICD + 0x100) = 1u << TIMER;
    *word(GICC + 4) = 0xff;
    *word(GICC) = 1;
    timer(2000);
    __asm__ volatile("msr daifclr, #2");
    unsigned sum = 0, x = 1;
    for (int i = 0; i < 3; i++) {
        __asm__ volatile("svc #1" : : : "memory");
        sum += load(0x7000000000 + 8 * i);
    }
    enter_user();
    while (ticks < 6) {
        x = x * 1664525 + 1013904223;
        if (x >> 31)
            sum ^= 0;
    }
    __asm__ volatile("msr daifset, #2\n svc #9" : : : "memory");
    return sum == 51 && services == 3 + 2 + 3 + 9 && users == 2 && aborts == 3 && ticks == 6 ? 0 : 1;
}
