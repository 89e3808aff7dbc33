// Signals: a handler that is called by kill, and one that repairs what was wrong with a load.
// build a64 a32 t32
// exit 53
#include "linux.h"

struct action {
    void *handler;
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask[8 / sizeof(long)];
};
enum { SIGUSR1 = 10, SIGSEGV = 11, SA_RESTORER = 0x4000000, SA_SIGINFO = 4 };

// Where the pointer's register is saved: in the machine's part of `struct ucontext`.
#if defined __aarch64__
#define RESTORE "mov x8, #139\n svc #0\n"
enum { SAVED = (40 + 128 + 8 + 8) / 8 };
#define FIX(context) (((uint64_t *)(context))[SAVED] = (uint64_t)&good)
#define LOAD(value, from) \
    register const volatile int *p __asm__("x0") = from; \
    __asm__ volatile("ldr %w0, [%1]" : "=r"(value), "+r"(p))
#else
#define RESTORE "mov r7, #173\n svc #0\n"
enum { SAVED = (20 + 12) / 4 };
#define FIX(context) (((uint32_t *)(context))[SAVED] = (uint32_t)&good)
#define LOAD(value, from) \
    register const volatile int *p __asm__("r0") = from; \
    __asm__ volatile("ldr %0, [%1]" : "=&r"(value), "+r"(p))
#endif

void restore(void);
#if defined __thumb__
__asm__(".thumb\n .thumb_func\n");
#endif
__asm__(".type restore, %function\nrestore:\n" RESTORE);

static volatile int good = 40, seen, faults;

static void on_user(int number) { seen += number; }
static void on_fault(int number, void *info, void *context) {
    (void)number, (void)info;
    faults++;
    FIX(context);
}

static void handle(int number, void *handler, unsigned long flags) {
    struct action action = {handler, flags | SA_RESTORER, restore, {0}};
    call(SYS_rt_sigaction, number, (long)&action, 0, sizeof(action.mask));
}

__attribute__((noinline)) static int load(const volatile int *from) {
    int value;
    LOAD(value, from);
    return value;
}

int run(void) {
    handle(SIGUSR1, on_user, SA_SIGINFO);
    handle(SIGSEGV, on_fault, SA_SIGINFO);
    call(SYS_kill, call(SYS_getpid, 0, 0, 0, 0), SIGUSR1, 0, 0);
    int value = load((const volatile int *)16) + load(&good) - 40;
    return value + seen + 3 * faults;
}
