// Bare metal M-profile: a kernel in small, whose control blocks have the names and the order of those of
// ThreadX, and which saves registers as its ports for Cortex-M do. One thread runs at `halt_here`. Linked
// by the test that runs it.
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define WORDS 96

enum { READY, COMPLETED, TERMINATED, SUSPENDED, SLEEP, QUEUE };

typedef struct TX_THREAD_STRUCT {
    uint32_t tx_thread_id, tx_thread_run_count;
    void *tx_thread_stack_ptr, *tx_thread_stack_start, *tx_thread_stack_end;
    uint32_t tx_thread_stack_size, tx_thread_time_slice, tx_thread_new_time_slice;
    struct TX_THREAD_STRUCT *tx_thread_ready_next, *tx_thread_ready_previous;
    char *tx_thread_name;
    uint32_t tx_thread_priority, tx_thread_state;
    struct TX_THREAD_STRUCT *tx_thread_created_next, *tx_thread_created_previous;
} TX_THREAD;

extern uint32_t stack_top;
TX_THREAD *_tx_thread_created_ptr;
TX_THREAD *volatile _tx_thread_current_ptr;
uint32_t _tx_thread_created_count;
static TX_THREAD blocks[4];
static uint32_t stacks[4][WORDS];
#ifdef __ARM_FP
static volatile float sum = 1.5f;
#define SAVE_FLOAT "tst lr, #16\n\tit eq\n\tvstmdbeq r0!, {s16-s31}\n\t"
#define LOAD_FLOAT "tst lr, #16\n\tit eq\n\tvldmiaeq r0!, {s16-s31}\n\t"
#else
static volatile uint32_t sum;
#define SAVE_FLOAT ""
#define LOAD_FLOAT ""
#endif

__attribute__((used)) static void *next(void *stack_pointer)
{
    if (stack_pointer)
        _tx_thread_current_ptr->tx_thread_stack_ptr = stack_pointer;
    TX_THREAD *thread = blocks;
    while (thread->tx_thread_state != READY)
        thread++;
    _tx_thread_current_ptr = thread;
    return thread->tx_thread_stack_ptr;
}

__attribute__((naked)) static void on_pend(void)
{
    __asm__("mrs r0, psp\n\tstmdb r0!, {r4-r11}\n\t" SAVE_FLOAT "str lr, [r0, #-4]!\n\tbl next\n\t"
            "ldr lr, [r0], #4\n\t" LOAD_FLOAT "ldmia r0!, {r4-r11}\n\tmsr psp, r0\n\tbx lr");
}

__attribute__((naked)) static void on_svc(void)
{
    __asm__("mov r0, #0\n\tbl next\n\tldr lr, [r0], #4\n\tldmia r0!, {r4-r11}\n\tmsr psp, r0\n\tbx lr");
}

__attribute__((noinline)) static void enter(uint32_t state)
{
    _tx_thread_current_ptr->tx_thread_state = state;
    REGISTER(0xe000ed04) = 1 << 28; // ICSR.PENDSVSET
    __asm__ volatile("dsb\n\tisb");
}

__attribute__((noinline)) static void sleep_deep(int depth)
{
    if (depth)
        sleep_deep(depth - 1);
    else
        enter(SLEEP);
    sum += 1;
}

static void sleeper(void)
{
    sum += 1;
    sleep_deep(2);
}

static void receiver(void)
{
    enter(QUEUE);
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

static void make(int number, void (*code)(void), uint32_t priority, char *name)
{
    TX_THREAD *block = blocks + number;
    uint32_t *top = stacks[number] + WORDS;
    for (int word = 0; word < WORDS; word++)
        stacks[number][word] = 0xefefefef;
    *--top = 1 << 24; // xPSR
    *--top = (uint32_t)code;
    top -= 6 + 8;
    *--top = 0xfffffffd;
    block->tx_thread_stack_ptr = top;
    block->tx_thread_stack_start = stacks[number];
    block->tx_thread_stack_end = (char *)stacks[number + 1] - 1;
    block->tx_thread_name = name;
    block->tx_thread_priority = priority;
    block->tx_thread_created_next = blocks + (number + 1) % 4;
    block->tx_thread_created_previous = blocks + (number + 3) % 4;
    _tx_thread_created_count++;
}

static void reset(void)
{
#ifdef __ARM_FP
    REGISTER(0xe000ed88) |= 0xf << 20; // CPACR
#endif
    make(0, sleeper, 2, "sleeper");
    make(1, receiver, 3, "receiver");
    make(2, worker, 8, "worker");
    make(3, idle, 31, "idle");
    _tx_thread_created_ptr = blocks;
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
