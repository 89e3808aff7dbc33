// Bare metal M-profile with floating point, for any memory map: recursion that keeps floating-point registers,
// SysTick, an interrupt nested in it, PendSV and SVC that use floating point, or do not, and an undefined
// instruction that is skipped. Linked by the test that runs it. With FPCCR_BITS, it inverts these bits of FPCCR.
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))

extern uint32_t stack_top;
static volatile uint32_t ticks, pends;
static volatile float sum, scale = 1;
static volatile int32_t whole;

static void on_interrupt(void)
{
    scale = scale * 1.25f;
}

static void on_tick(void)
{
    if (++ticks % 2)
        sum = sum + 0.5f;
    REGISTER(0xe000e200) = 1; // NVIC_ISPR0
    __asm__ volatile("dsb\n\tisb");
    REGISTER(0xe000ed04) = 1 << 28; // ICSR.PENDSVSET
}

static void on_pend(void)
{
    if (++pends % 3 == 0)
        whole = (int32_t)(sum * scale);
}

static void on_svc(void)
{
    sum += scale;
}

// Goes on behind the instruction of two bytes that faulted.
__attribute__((naked)) static void on_fault(void)
{
    __asm__("ldr r0, [sp, #24]\n\tadds r0, #2\n\tstr r0, [sp, #24]\n\tbx lr");
}

__attribute__((noinline)) static float mix(float a, float b, uint32_t n)
{
    if (n < 2)
        return a - b;
    return mix(b, a + 1, n - 1) * a + mix(a + b, b, n - 2);
}

__attribute__((noinline)) static uint32_t plain(uint32_t n)
{
    return n < 2 ? n : plain(n - 1) + plain(n - 2);
}

static void reset(void)
{
    REGISTER(0xe000ed88) |= 0xf << 20; // CPACR
#ifdef FPCCR_BITS
    REGISTER(0xe000ef34) ^= FPCCR_BITS;
#endif
    __asm__ volatile("dsb\n\tisb");
    REGISTER(0xe000ed20) = 0x80f00000; // SHPR3: SysTick, PendSV
    REGISTER(0xe000e100) = 1; // NVIC_ISER0
    REGISTER(0xe000e014) = 1500; // SYST_RVR, SYST_CVR, SYST_CSR
    REGISTER(0xe000e018) = 0;
    REGISTER(0xe000e010) = 7;
    uint32_t count = 0;
    for (uint32_t i = 0; i < 20; i++) {
        count += plain(i % 8);
        __asm__ volatile("svc #1");
    }
    for (uint32_t i = 0; i < 20; i++) {
        sum += mix(i, count, i % 9);
        __asm__ volatile("svc #1");
    }
    while (ticks < 6)
        sum += 1;
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

__attribute__((section(".vectors"), used)) static const void *const vectors[17] = {
    &stack_top, reset, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault,
    0,          0,     0,        on_svc,   0,        0,        on_pend,  on_tick,
    on_interrupt,
};
