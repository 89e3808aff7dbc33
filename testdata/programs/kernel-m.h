// Bare metal M-profile: what kernels in small share, whose threads are a sleeper, one that waits, a worker
// that stays in `halt_here`, and an idle one. A kernel defines what is declared here.
#include <stddef.h>
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define WORDS 96

#ifdef __ARM_FP
static volatile float sum = 1.5f;
#else
static volatile uint32_t sum;
#endif

extern uint32_t stack_top;
static uint32_t stacks[4][WORDS];

// Gives the state of a thread that sleeps, or waits, to the running thread.
static void set_sleeping(void);
static void set_waiting(void);
// Makes the threads, and the first one the next to run.
static void start(void);
// Switch to another thread; start the first one.
static void on_pend(void);
static void on_svc(void);

__attribute__((noinline)) static void enter(void (*set_state)(void))
{
    set_state();
    REGISTER(0xe000ed04) = 1 << 28; // ICSR.PENDSVSET
    __asm__ volatile("dsb\n\tisb");
}

__attribute__((noinline)) static void sleep_deep(int depth)
{
    if (depth)
        sleep_deep(depth - 1);
    else
        enter(set_sleeping);
    sum += 1;
}

static void sleeper(void)
{
    sum += 1;
    sleep_deep(2);
}

static void waiter(void)
{
    enter(set_waiting);
    sum += 1;
}

__attribute__((noinline)) void halt_here(void)
{
    for (;;)
        __asm__ volatile("nop");
}

static void worker(void)
{
    halt_here();
    sum += 1;
}

static void idle(void)
{
    for (;;)
        ;
}

// Fills a stack, with the words of an exception's frame at its top. Returns where the frame is.
static uint32_t *frame(int number, void (*code)(void), uint32_t fill)
{
    uint32_t *top = stacks[number] + WORDS;
    for (int word = 0; word < WORDS; word++)
        stacks[number][word] = fill;
    *--top = 1 << 24; // xPSR
    *--top = (uint32_t)code & ~1u;
    return top - 6;
}

static void reset(void)
{
#ifdef __ARM_FP
    REGISTER(0xe000ed88) |= 0xf << 20; // CPACR
#endif
    start();
    REGISTER(0xe000ed20) = 0x00f00000; // SHPR3: PendSV
    __asm__ volatile("svc 0");
    for (;;)
        ;
}

static void on_fault(void)
{
    for (;;)
        ;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, reset, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault,
    0,          0,     0,        on_svc,   0,        0,        on_pend,  on_fault,
};
