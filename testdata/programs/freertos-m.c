// Bare metal M-profile: a kernel in small, whose lists and control blocks have the names and the order of
// those of FreeRTOS, and which saves registers as its ports ARM_CM3, ARM_CM4F and ARM_CM33_NTZ do. One
// task runs at `halt_here`; the others are in one list each. Linked by the test that runs it.
#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define WORDS 96
#define FILL 0xa5a5a5a5u
#define CONTAINER_OF_STATE(item) ((TCB_t *)(item)->pvOwner)

typedef struct xLIST List_t;
typedef struct xLIST_ITEM {
    uint32_t xItemValue;
    struct xLIST_ITEM *pxNext, *pxPrevious;
    void *pvOwner;
    List_t *pxContainer;
} ListItem_t;
struct xLIST {
    volatile uint32_t uxNumberOfItems;
    ListItem_t *pxIndex;
    struct xMINI_LIST_ITEM {
        uint32_t xItemValue;
        ListItem_t *pxNext, *pxPrevious;
    } xListEnd;
};
typedef struct tskTaskControlBlock {
    uint32_t *volatile pxTopOfStack;
    ListItem_t xStateListItem, xEventListItem;
    uint32_t uxPriority;
    uint32_t *pxStack;
    char pcTaskName[12];
} TCB_t;

extern uint32_t stack_top;
TCB_t *volatile pxCurrentTCB;
static List_t pxReadyTasksLists[4], xDelayedTaskList1, xDelayedTaskList2, xPendingReadyList;
static List_t xSuspendedTaskList, xTasksWaitingTermination, events;
static volatile int32_t xSchedulerRunning;
static volatile uint32_t uxCurrentNumberOfTasks;
static TCB_t blocks[6];
static uint32_t stacks[6][WORDS];
#ifdef __ARM_FP
static volatile float sum = 1.5f;
#else
static volatile uint32_t sum;
#endif

static void clear(List_t *list)
{
    list->xListEnd.pxNext = list->xListEnd.pxPrevious = list->pxIndex = (ListItem_t *)&list->xListEnd;
}

static void append(List_t *list, ListItem_t *item)
{
    ListItem_t *end = (ListItem_t *)&list->xListEnd;
    item->pxNext = end;
    item->pxPrevious = end->pxPrevious;
    end->pxPrevious->pxNext = item;
    end->pxPrevious = item;
    item->pxContainer = list;
    list->uxNumberOfItems++;
}

static void take(ListItem_t *item)
{
    item->pxNext->pxPrevious = item->pxPrevious;
    item->pxPrevious->pxNext = item->pxNext;
    item->pxContainer->uxNumberOfItems--;
    item->pxContainer = 0;
}

__attribute__((used)) static void choose(void)
{
    for (int priority = 3; priority >= 0; priority--)
        if (pxReadyTasksLists[priority].uxNumberOfItems) {
            pxCurrentTCB = CONTAINER_OF_STATE(pxReadyTasksLists[priority].xListEnd.pxNext);
            return;
        }
}

#if __ARM_ARCH >= 8
#define SAVE "mrs r2, psplim\n\tmov r3, lr\n\tstmdb r0!, {r2-r11}\n\t"
#define LOAD "ldmia r0!, {r2-r11}\n\tmsr psplim, r2\n\tmov lr, r3\n\t"
#elif defined __ARM_FP
#define SAVE "tst lr, #16\n\tit eq\n\tvstmdbeq r0!, {s16-s31}\n\tstmdb r0!, {r4-r11, lr}\n\t"
#define LOAD "ldmia r0!, {r4-r11, lr}\n\ttst lr, #16\n\tit eq\n\tvldmiaeq r0!, {s16-s31}\n\t"
#else
#define SAVE "stmdb r0!, {r4-r11}\n\t"
#define LOAD "ldmia r0!, {r4-r11}\n\tmvn lr, #2\n\t"
#endif

__attribute__((naked)) static void on_pend(void)
{
    __asm__("mrs r0, psp\n\tisb\n\t" SAVE "ldr r1, =pxCurrentTCB\n\tldr r1, [r1]\n\tstr r0, [r1]\n\t"
            "push {r3, lr}\n\tbl choose\n\tpop {r3, lr}\n\t"
            "ldr r1, =pxCurrentTCB\n\tldr r1, [r1]\n\tldr r0, [r1]\n\t" LOAD "msr psp, r0\n\tisb\n\tbx lr");
}

// Starts the first task.
__attribute__((naked)) static void on_svc(void)
{
    __asm__("ldr r1, =pxCurrentTCB\n\tldr r1, [r1]\n\tldr r0, [r1]\n\t" LOAD "msr psp, r0\n\tisb\n\tbx lr");
}

// Moves the running task to a list, and lets another run.
__attribute__((noinline)) static void enter(List_t *list)
{
    take(&pxCurrentTCB->xStateListItem);
    append(list, &pxCurrentTCB->xStateListItem);
    REGISTER(0xe000ed04) = 1 << 28; // ICSR.PENDSVSET
    __asm__ volatile("dsb\n\tisb");
}

__attribute__((noinline)) static void sleep_deep(int depth)
{
    if (depth)
        sleep_deep(depth - 1);
    else
        enter(&xDelayedTaskList1);
    sum += 1;
}

static void sleeper(void)
{
    sum += 1;
    sleep_deep(2);
}

__attribute__((noinline)) static void wait_for_event(void)
{
    append(&events, &pxCurrentTCB->xEventListItem);
    enter(&xSuspendedTaskList);
    sum += 1;
}

static void waiter(void)
{
    wait_for_event();
}

static void suspended(void)
{
    enter(&xSuspendedTaskList);
    sum += 1;
}

static void deleted(void)
{
    enter(&xTasksWaitingTermination);
    sum += 1;
}

__attribute__((noinline)) void halt_here(void)
{
    for (;;)
        __asm__ volatile("nop");
}

static void worker(void)
{
    // What a task that writes where it should not may leave behind.
#if DAMAGE == 1
    blocks[1].xStateListItem.pxNext = &blocks[1].xStateListItem;
#elif DAMAGE == 2
    blocks[0].xStateListItem.pxNext = (ListItem_t *)0xdead0000;
#elif DAMAGE == 3
    stacks[2][0] = 0;
    blocks[3].pxTopOfStack = stacks[3] - 2;
#elif DAMAGE == 4
    blocks[1].xStateListItem.pxContainer = &events;
    blocks[2].xStateListItem.pvOwner = blocks;
#endif
    halt_here();
    sum += 1;
}

static void never(void)
{
    for (;;)
        ;
}

static void make(int number, void (*code)(void), uint32_t priority, const char *name)
{
    TCB_t *block = blocks + number;
    uint32_t *top = stacks[number] + WORDS;
    for (int word = 0; word < WORDS; word++)
        stacks[number][word] = FILL;
    *--top = 1 << 24; // xPSR
    *--top = (uint32_t)code & ~1u;
    top -= 6;
#if __ARM_ARCH >= 8
    top -= 8;
    *--top = 0xfffffffd;
    *--top = (uint32_t)stacks[number];
#elif defined __ARM_FP
    *--top = 0xfffffffd;
    top -= 8;
#else
    top -= 8;
#endif
    block->pxTopOfStack = top;
    block->pxStack = stacks[number];
    block->uxPriority = priority;
    block->xStateListItem.pvOwner = block->xEventListItem.pvOwner = block;
    for (int at = 0; at < 11 && name[at]; at++)
        block->pcTaskName[at] = name[at];
    append(pxReadyTasksLists + priority, &block->xStateListItem);
    uxCurrentNumberOfTasks++;
}

static void reset(void)
{
#ifdef __ARM_FP
    REGISTER(0xe000ed88) |= 0xf << 20; // CPACR
#endif
    for (int priority = 0; priority < 4; priority++)
        clear(pxReadyTasksLists + priority);
    clear(&xDelayedTaskList1);
    clear(&xDelayedTaskList2);
    clear(&xPendingReadyList);
    clear(&xSuspendedTaskList);
    clear(&xTasksWaitingTermination);
    clear(&events);
    make(0, sleeper, 3, "sleeper");
    make(1, waiter, 3, "waiter");
    make(2, suspended, 2, "suspended");
    make(3, deleted, 2, "deleted");
    make(4, worker, 1, "worker");
    make(5, never, 0, "red\033[31m");
    REGISTER(0xe000ed20) = 0x00f00000; // SHPR3: PendSV
    choose();
    xSchedulerRunning = 1;
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
