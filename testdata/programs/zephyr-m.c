// Bare metal M-profile: a kernel in small, which describes its threads to debuggers as Zephyr does, and
// saves registers in the thread. One thread runs at `halt_here`. Linked by the test that runs it.
#include "kernel-m.h"

enum { PENDING = 2, SLEEPING = 4, QUEUED = 128 };

struct k_thread {
    struct {
        uint32_t queue[3];
        uint8_t user_options, thread_state;
        int8_t prio;
    } base;
    struct {
        uint32_t v[8], psp;
    } callee_saved;
    struct k_thread *next_thread;
    char name[16];
    struct {
        uint32_t *start, size;
    } stack_info;
    struct {
        uint32_t basepri;
        float preempt_float[16];
        uint8_t mode_exc_return;
    } arch;
};

struct z_kernel {
    struct {
        uint32_t nested;
        char *irq_stack;
        struct k_thread *current;
    } cpus[1];
    struct k_thread *threads;
} _kernel;

static struct k_thread threads[4];
#ifdef __ARM_FP
#define FLOAT offsetof(struct k_thread, arch.preempt_float) - offsetof(struct k_thread, arch)
#else
#define FLOAT 0xffffffff
#endif

const size_t _kernel_thread_info_offsets[] = {
    1,
    offsetof(struct z_kernel, cpus[0].current),
    offsetof(struct z_kernel, threads),
    0xffffffff,
    offsetof(struct k_thread, next_thread),
    offsetof(struct k_thread, base.thread_state),
    offsetof(struct k_thread, base.user_options),
    offsetof(struct k_thread, base.prio),
    offsetof(struct k_thread, callee_saved.psp),
    offsetof(struct k_thread, name),
    offsetof(struct k_thread, arch),
    FLOAT,
    0xffffffff,
    offsetof(struct k_thread, arch.mode_exc_return) - offsetof(struct k_thread, arch),
    0xffffffff,
};
const size_t _kernel_thread_info_num_offsets = sizeof _kernel_thread_info_offsets / sizeof(size_t);

// Saves R4 to R11, PSP and EXC_RETURN in the thread, and loads those of the next one.
__attribute__((used)) static uint32_t *save(uint32_t *registers, uint32_t psp, uint32_t exc_return)
{
    struct k_thread *thread = _kernel.cpus[0].current;
    if (registers) {
        for (int number = 0; number < 8; number++)
            thread->callee_saved.v[number] = registers[number];
        thread->callee_saved.psp = psp;
        thread->arch.mode_exc_return = exc_return;
#ifdef __ARM_FP
        if (!(exc_return & 16))
            __asm__ volatile("vstmia %0, {s16-s31}" : : "r"(thread->arch.preempt_float) : "memory");
#endif
    }
    for (thread = threads; thread->base.thread_state & (PENDING | SLEEPING); thread++)
        ;
    _kernel.cpus[0].current = thread;
    return thread->callee_saved.v;
}

__attribute__((naked)) static void on_pend(void)
{
    __asm__("push {r4-r11}\n\tmov r0, sp\n\tmrs r1, psp\n\tmov r2, lr\n\tbl save\n\tpop {r4-r11}\n\t"
            "ldmia r0!, {r4-r11}\n\tldr r0, [r0]\n\tmsr psp, r0\n\tmvn lr, #2\n\tbx lr");
}

__attribute__((naked)) static void on_svc(void)
{
    __asm__("mov r0, #0\n\tbl save\n\tldmia r0!, {r4-r11}\n\tldr r0, [r0]\n\tmsr psp, r0\n\t"
            "mvn lr, #2\n\tbx lr");
}

static void set_sleeping(void)
{
    _kernel.cpus[0].current->base.thread_state = SLEEPING;
}

static void set_waiting(void)
{
    _kernel.cpus[0].current->base.thread_state = PENDING;
}

static void make(int number, void (*code)(void), int8_t priority, const char *name)
{
    struct k_thread *thread = threads + number;
    thread->callee_saved.psp = (uint32_t)frame(number, code, 0xaaaaaaaa);
    thread->arch.mode_exc_return = 0xfd;
    thread->base.thread_state = QUEUED;
    thread->base.prio = priority;
    thread->stack_info.start = stacks[number];
    thread->stack_info.size = sizeof stacks[number];
    for (int at = 0; at < 15 && name[at]; at++)
        thread->name[at] = name[at];
    thread->next_thread = _kernel.threads;
    _kernel.threads = thread;
}

static void start(void)
{
    make(0, sleeper, -2, "sleeper");
    make(1, waiter, 1, "waiter");
    make(2, worker, 7, "worker");
    make(3, idle, 15, "idle");
}
