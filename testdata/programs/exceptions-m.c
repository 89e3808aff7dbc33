// Bare metal M-profile for any core and memory map: SysTick that asks for PendSV while it recurses,
// SVC, and an undefined instruction that is skipped. Linked by the test that runs it.
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))

extern uint32_t stack_top;
static volatile uint32_t ticks, pends, calls, sum;

static void on_tick(void)
{
    ticks++;
    REGISTER(0xe000ed04) = 1 << 28; // ICSR.PENDSVSET
}

static void on_pend(void)
{
    pends++;
}

static void on_svc(void)
{
    calls++;
}

// Goes on behind the instruction of two bytes that faulted.
__attribute__((naked)) static void on_fault(void)
{
    __asm__("ldr r0, [sp, #24]\n\tadds r0, #2\n\tstr r0, [sp, #24]\n\tbx lr");
}

__attribute__((noinline)) static uint32_t fib(uint32_t n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void reset(void)
{
    REGISTER(0xe000e014) = 2000; // SYST_RVR, SYST_CVR, SYST_CSR
    REGISTER(0xe000e018) = 0;
    REGISTER(0xe000e010) = 7;
    for (uint32_t i = 0; i < 40; i++) {
        sum += fib(i % 10);
        __asm__ volatile("svc #1");
    }
    while (ticks < 5)
        sum++;
    REGISTER(0xe000e010) = 0;
    __asm__ volatile(".short 0xde00");
    // SYS_EXIT_EXTENDED
    static const uint32_t block[2] = {0x20026, 3};
    register uint32_t operation __asm__("r0") = 0x20;
    register const void *argument __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(argument) : "memory");
    for (;;)
        ;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, reset, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault,
    0,          0,     0,        on_svc,   0,        0,        on_pend,  on_tick,
};
