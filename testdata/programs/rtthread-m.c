// Bare metal M-profile: a kernel in small, whose objects and threads have the names and the order of those
// of RT-Thread 5, or 4 with -DVERSION=4, and which saves registers as its ports for Cortex-M do. One thread
// runs at `halt_here`. Linked by the test that runs it.
#include "kernel-m.h"

#if VERSION == 4
enum { READY = 1, SUSPENDED = 2, RUNNING = 3 };
#else
enum { READY = 2, SUSPENDED = 7, RUNNING = 3 };
#endif

typedef struct rt_list_node {
    struct rt_list_node *next, *prev;
} rt_list_t;

struct rt_object {
    char name[8];
    uint8_t type, flag;
    rt_list_t list;
};

struct rt_object_information {
    enum { RT_Object_Class_Null, RT_Object_Class_Thread } type;
    rt_list_t object_list;
    uint32_t object_size;
};

struct rt_thread {
#if VERSION == 4
    char name[8];
    uint8_t type, flags;
    rt_list_t list, tlist;
    void *sp, *entry, *parameter, *stack_addr;
    uint32_t stack_size, error;
    uint8_t stat, current_priority;
#else
    struct rt_object parent;
    void *sp, *entry, *parameter, *stack_addr;
    uint32_t stack_size, error;
    struct rt_sched_thread_ctx {
        rt_list_t thread_list_node;
        uint8_t stat;
        struct {
            uint32_t init_tick, remaining_tick;
            uint8_t current_priority, init_priority;
        } sched_thread_priv;
    } sched_thread_ctx;
#endif
};

static struct rt_object_information _object_container[] = {
    {RT_Object_Class_Thread, {&_object_container[0].object_list, &_object_container[0].object_list}, 0},
};
static struct rt_thread threads[4];

#if VERSION == 4
struct rt_thread *volatile rt_current_thread;
#define CURRENT rt_current_thread
#define STATE(thread) (thread)->stat
#define PRIORITY(thread) (thread)->current_priority
#else
static struct rt_cpu {
    struct rt_thread *volatile current_thread, *idle_thread;
} _cpu;
#define CURRENT _cpu.current_thread
#define STATE(thread) (thread)->sched_thread_ctx.stat
#define PRIORITY(thread) (thread)->sched_thread_ctx.sched_thread_priv.current_priority
#endif

uint32_t rt_thread_switch_interrupt_flag, rt_interrupt_from_thread;

#ifdef __ARM_FP
// A word below R4 says whether S16 to S31 are saved.
#define SAVE_FLOAT "tst lr, #16\n\tit eq\n\tvstmdbeq r0!, {s16-s31}\n\t"
#define SAVE_FLAG "ite eq\n\tmoveq r1, #1\n\tmovne r1, #0\n\tstr r1, [r0, #-4]!\n\t"
#define LOAD_FLAG "ldr r1, [r0], #4\n\t"
#define LOAD_FLOAT "orr lr, lr, #16\n\tcmp r1, #0\n\titt ne\n\tvldmiane r0!, {s16-s31}\n\tbicne lr, lr, #16\n\t"
#else
#define SAVE_FLOAT ""
#define SAVE_FLAG ""
#define LOAD_FLAG ""
#define LOAD_FLOAT ""
#endif

__attribute__((used)) static void *next(void *stack_pointer)
{
    if (stack_pointer)
        CURRENT->sp = stack_pointer;
    struct rt_thread *thread = threads;
    while (STATE(thread) != READY)
        thread++;
    STATE(thread) = RUNNING;
    CURRENT = thread;
#ifdef PENDING
    // As if an interrupt in the worker had made another thread the current one, whose exception is pending.
    if (thread == threads + 2) {
        rt_thread_switch_interrupt_flag = 1;
        rt_interrupt_from_thread = (uint32_t)&thread->sp;
        STATE(thread) = READY;
        CURRENT = threads + 3;
        STATE(CURRENT) = RUNNING;
    }
#endif
    return thread->sp;
}

__attribute__((naked)) static void on_pend(void)
{
    __asm__("mrs r0, psp\n\t" SAVE_FLOAT "stmdb r0!, {r4-r11}\n\t" SAVE_FLAG
            "push {r0, lr}\n\tbl next\n\tpop {r1, lr}\n\t" LOAD_FLAG
            "ldmia r0!, {r4-r11}\n\t" LOAD_FLOAT "msr psp, r0\n\tbx lr");
}

__attribute__((naked)) static void on_svc(void)
{
    __asm__("mov r0, #0\n\tbl next\n\t" LOAD_FLAG "ldmia r0!, {r4-r11}\n\tmsr psp, r0\n\tmvn lr, #2\n\tbx lr");
}

static void set_sleeping(void)
{
    STATE(CURRENT) = SUSPENDED;
}

static void set_waiting(void)
{
    STATE(CURRENT) = SUSPENDED | 8;
}

static void make(int number, void (*code)(void), uint8_t priority, const char *name)
{
    struct rt_thread *thread = threads + number;
    struct rt_object *object = (struct rt_object *)thread;
    uint32_t *top = frame(number, code, 0x23232323) - 8;
#ifdef __ARM_FP
    *--top = 0;
#endif
    for (int at = 0; at < 8 && name[at]; at++)
        object->name[at] = name[at];
    object->type = RT_Object_Class_Thread | 0x80;
    rt_list_t *head = &_object_container[0].object_list;
    object->list.next = head->next;
    object->list.prev = head;
    head->next->prev = &object->list;
    head->next = &object->list;
    thread->sp = top;
    thread->stack_addr = stacks[number];
    thread->stack_size = sizeof stacks[number];
    STATE(thread) = READY;
    PRIORITY(thread) = priority;
}

static void start(void)
{
    make(0, sleeper, 2, "sleeper");
    make(1, waiter, 3, "waiter");
    make(2, worker, 8, "worker");
    make(3, idle, 31, "tidle0");
#if DAMAGE == 1
    // An object of another class, and a list that reaches its second entry again.
    threads[3].parent.type = 2;
    threads[0].parent.list.next = &threads[2].parent.list;
    stacks[1][0] = 0;
#elif DAMAGE == 2
    threads[1].parent.list.next = (void *)0xdead0000;
#endif
}
