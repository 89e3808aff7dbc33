// Bare metal M-profile: a kernel in small, whose tasks have the names and the order of those of NuttX, and
// which saves registers as its ports for Cortex-M do. One task runs at `halt_here`. Linked by the test that
// runs it.
#include "kernel-m.h"

typedef enum tstate_e {
    TSTATE_TASK_INVALID,
    TSTATE_TASK_PENDING,
    TSTATE_TASK_READYTORUN,
    TSTATE_TASK_RUNNING,
    TSTATE_TASK_INACTIVE,
    TSTATE_WAIT_SEM,
    TSTATE_WAIT_SIG,
    TSTATE_WAIT_MQNOTEMPTY,
} tstate_t;

struct tcb_s {
    struct tcb_s *flink, *blink;
    int pid;
    uint8_t sched_priority;
    tstate_t task_state;
    size_t adj_stack_size;
    void *stack_alloc_ptr, *stack_base_ptr;
    struct {
        uint32_t *regs;
    } xcp;
    char name[16];
};

static struct tcb_s tasks[4];
static struct tcb_s *slots[8];
struct tcb_s **g_pidhash = slots;
volatile int g_npidhash;
struct tcb_s *volatile g_running_tasks[1];

#ifdef __ARM_FP
// Space for S16 to S31 is left if they are not saved.
#define SAVE_FLOAT "tst lr, #16\n\tite eq\n\tvstmdbeq r0!, {s16-s31}\n\tsubne r0, #64\n\t"
#define LOAD_FLOAT "tst lr, #16\n\tite eq\n\tvldmiaeq r0!, {s16-s31}\n\taddne r0, #64\n\t"
#define SPACE 16
#else
#define SAVE_FLOAT ""
#define LOAD_FLOAT ""
#define SPACE 0
#endif

__attribute__((used)) static void *next(void *registers)
{
    if (registers)
        g_running_tasks[0]->xcp.regs = registers;
    struct tcb_s *task = tasks;
    while (task->task_state != TSTATE_TASK_READYTORUN)
        task++;
    task->task_state = TSTATE_TASK_RUNNING;
    g_running_tasks[0] = task;
    return task->xcp.regs;
}

#define LOAD \
    "ldmia r0!, {r2-r3}\n\tmsr basepri, r3\n\tldmia r0!, {r4-r11}\n\tldmia r0!, {r1, lr}\n\t" LOAD_FLOAT \
    "msr psp, r0\n\tmsr control, r1\n\tbx lr"

// From the lowest address on: the stack pointer, BASEPRI, R4 to R11, CONTROL, EXC_RETURN.
__attribute__((naked)) static void on_pend(void)
{
    __asm__("mrs r0, psp\n\tmov r2, r0\n\tmrs r3, basepri\n\tmrs r1, control\n\t" SAVE_FLOAT
            "str lr, [r0, #-4]!\n\tstr r1, [r0, #-4]!\n\tstmdb r0!, {r2-r11}\n\tbl next\n\t" LOAD);
}

__attribute__((naked)) static void on_svc(void)
{
    __asm__("mov r0, #0\n\tbl next\n\t" LOAD);
}

static void set_sleeping(void)
{
    g_running_tasks[0]->task_state = TSTATE_WAIT_SIG;
}

static void set_waiting(void)
{
    g_running_tasks[0]->task_state = TSTATE_WAIT_SEM;
}

static void make(int number, void (*code)(void), uint8_t priority, const char *name)
{
    struct tcb_s *task = tasks + number;
    uint32_t *top = frame(number, code, 0xdeadbeef) - SPACE;
    *--top = 0xfffffffd;
    *--top = 0; // CONTROL
    top -= 8;
    *--top = 0; // BASEPRI
    task->xcp.regs = top - 1;
    task->pid = number + 1;
    task->sched_priority = priority;
    task->task_state = TSTATE_TASK_READYTORUN;
    task->stack_alloc_ptr = task->stack_base_ptr = stacks[number];
    task->adj_stack_size = sizeof stacks[number];
    for (int at = 0; at < 15 && name[at]; at++)
        task->name[at] = name[at];
    slots[task->pid % 8] = task;
}

static void start(void)
{
    g_pidhash = slots;
    g_npidhash = 8;
    make(0, sleeper, 200, "sleeper");
    make(1, waiter, 150, "waiter");
    make(2, worker, 100, "worker");
    make(3, idle, 0, "Idle_Task");
#if DAMAGE == 1
    // A pointer to nothing, a task in two slots, and a stack that was used up to its end.
    slots[5] = (void *)0xdead0000;
    slots[6] = tasks + 2;
    stacks[3][0] = 0;
#elif DAMAGE == 2
    g_npidhash = 1 << 20;
#endif
}
