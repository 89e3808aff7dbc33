// Bare metal M-profile for any core and memory map: two tasks on process stacks, which SysTick interrupts
// with an interrupt nested in it, and which PendSV switches; at the end a fault in a task. Handlers note
// PSP in `seen`, for comparison. Linked by the test that runs it.
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define NOTE_PSP() __asm__ volatile("mrs %0, psp" : "=r"(seen))

struct task {
    uint32_t *stack_pointer;
    uint32_t stack[128];
};

extern uint32_t stack_top;
static struct task tasks[2], *current;
volatile uint32_t seen;
static volatile uint32_t ticks, interrupts, switches;
#ifdef __ARM_FP
static volatile float sum;
#else
static volatile uint32_t sum;
#endif

__attribute__((noinline)) void in_interrupt(void)
{
    interrupts++;
}

static void on_interrupt(void)
{
    NOTE_PSP();
    sum += 2;
    in_interrupt();
}

__attribute__((noinline)) void in_tick(void)
{
    ticks++;
}

static void on_tick(void)
{
    NOTE_PSP();
    in_tick();
    REGISTER(0xe000e200) = 1; // NVIC_ISPR0
    __asm__ volatile("dsb\n\tisb");
    ticks++;
}

__attribute__((noinline)) void third_switch(void)
{
    switches++;
}

__attribute__((used)) static uint32_t *next_stack(uint32_t *stack_pointer)
{
    NOTE_PSP();
    current->stack_pointer = stack_pointer;
    if (++switches == 3)
        third_switch();
    current = current == tasks ? tasks + 1 : tasks;
    return current->stack_pointer;
}

#ifdef __ARM_FP
#define SAVE "tst lr, #16\n\tit eq\n\tvstmdbeq r0!, {s16-s31}\n\t"
#define RESTORE "tst lr, #16\n\tit eq\n\tvldmiaeq r0!, {s16-s31}\n\t"
#else
#define SAVE ""
#define RESTORE ""
#endif

__attribute__((naked)) static void on_pend(void)
{
    __asm__("mrs r0, psp\n\t" SAVE "stmdb r0!, {r4-r11, lr}\n\t"
            "push {r3, lr}\n\tbl next_stack\n\tpop {r3, lr}\n\t"
            "ldmia r0!, {r4-r11, lr}\n\t" RESTORE "msr psp, r0\n"
            "psp_written: .global psp_written\n\t"
            "nop\n\tbx lr");
}

// Starts the first task.
__attribute__((naked)) static void on_svc(void)
{
    __asm__("ldr r0, =current\n\tldr r0, [r0]\n\tldr r0, [r0]\n\t"
            "ldmia r0!, {r4-r11, lr}\n\tmsr psp, r0\n\tbx lr");
}

__attribute__((used, noinline)) static void report(void)
{
    NOTE_PSP();
    static const uint32_t block[2] = {0x20026, 0};
    register uint32_t operation __asm__("r0") = 0x20; // SYS_EXIT_EXTENDED
    register const void *argument __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(argument) : "memory");
    for (;;)
        ;
}

__attribute__((naked)) static void on_fault(void)
{
    __asm__("b report");
}

__attribute__((noinline)) static void yield(void)
{
    REGISTER(0xe000ed04) = 1 << 28; // ICSR.PENDSVSET
    __asm__ volatile("dsb\n\tisb");
}

__attribute__((noinline)) static uint32_t load(const uint32_t *from)
{
    return *from + 1;
}

__attribute__((noinline)) static void wait(void)
{
    while (ticks == 0)
        sum += 1;
}

static void first(void)
{
    wait();
    REGISTER(0xe000e010) = 0;
    for (uint32_t i = 0; i < 3; i++)
        yield();
    seen = load((const uint32_t *)0xdead0000);
    for (;;)
        ;
}

static void second(void)
{
    for (;;)
        yield();
}

static void make(struct task *task, void (*code)(void))
{
    uint32_t *top = task->stack + 128;
    *--top = 1 << 24; // xPSR
    *--top = (uint32_t)code & ~1u;
    top -= 6;
    *--top = 0xfffffffd;
    top -= 8;
    task->stack_pointer = top;
}

static void reset(void)
{
#ifdef __ARM_FP
    REGISTER(0xe000ed88) |= 0xf << 20; // CPACR
#endif
    make(tasks, first);
    make(tasks + 1, second);
    current = tasks;
    REGISTER(0xe000ed20) = 0x80f00000; // SHPR3: SysTick, PendSV
    REGISTER(0xe000e100) = 1; // NVIC_ISER0
    REGISTER(0xe000e014) = 20000; // SYST_RVR, SYST_CVR, SYST_CSR
    REGISTER(0xe000e018) = 0;
    REGISTER(0xe000e010) = 7;
    __asm__ volatile("svc 0");
    for (;;)
        ;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[17] = {
    &stack_top, reset, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault,
    0,          0,     0,        on_svc,   0,        0,        on_pend,  on_tick,
    on_interrupt,
};
