// Bare metal M-profile: a kernel in small, whose control blocks have the names and the order of those of
// ThreadX, and which saves registers as its ports for Cortex-M do. One thread runs at `halt_here`. Linked
// by the test that runs it.
#include "kernel-m.h"

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

TX_THREAD *_tx_thread_created_ptr;
TX_THREAD *volatile _tx_thread_current_ptr;
uint32_t _tx_thread_created_count;
static TX_THREAD blocks[4];
#ifdef __ARM_FP
#define SAVE_FLOAT "tst lr, #16\n\tit eq\n\tvstmdbeq r0!, {s16-s31}\n\t"
#define LOAD_FLOAT "tst lr, #16\n\tit eq\n\tvldmiaeq r0!, {s16-s31}\n\t"
#else
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

static void set_sleeping(void)
{
    _tx_thread_current_ptr->tx_thread_state = SLEEP;
}

static void set_waiting(void)
{
    _tx_thread_current_ptr->tx_thread_state = QUEUE;
}

static void make(int number, void (*code)(void), uint32_t priority, char *name)
{
    TX_THREAD *block = blocks + number;
    uint32_t *top = frame(number, code, 0xefefefef) - 8;
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

static void start(void)
{
    make(0, sleeper, 2, "sleeper");
    make(1, waiter, 3, "waiter");
    make(2, worker, 8, "worker");
    make(3, idle, 31, "idle");
    _tx_thread_created_ptr = blocks;
}
